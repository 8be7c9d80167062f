//! A condition: a typed tree of comparisons over the numbers of a step, made from a CEL expression.

use crate::route::StepView;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use thiserror::Error;

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Fault {
    #[error("this is no expression: {0}")]
    Syntax(String),
    #[error("there is no variable `{name}`; known are {}", names())]
    Unknown { name: String },
    #[error("a {expected} is wanted where a {found} stands")]
    Type { expected: &'static str, found: &'static str },
    #[error("`{0}` is not supported; there are + - * /, comparisons, && || ! and parentheses")]
    Unsupported(String),
}

/// A number of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Entropy,
    EntropyNormalised,
    MaxProbability,
    Margin,
    Head,
    /// How many tokens the reply has before this one.
    Position,
    /// The route draw of the position, uniform in `[0, 1)`.
    Draw,
}

const VARIABLES: [(&str, Variable); 7] = [
    ("entropy", Variable::Entropy),
    ("entropy_normalised", Variable::EntropyNormalised),
    ("max_probability", Variable::MaxProbability),
    ("margin", Variable::Margin),
    ("head", Variable::Head),
    ("position", Variable::Position),
    ("draw", Variable::Draw),
];

fn names() -> String {
    VARIABLES.map(|(name, _)| name).join(", ")
}

/// Something that holds or does not hold of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    Constant(bool),
    Compare(Comparison, Number, Number),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Constant(f64),
    Variable(Variable),
    Minus(Box<Number>),
    Combine(Operation, Box<[Number; 2]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Condition {
    /// Reads and checks a CEL expression.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let program = cel::Program::compile(text).map_err(|e| Fault::Syntax(one_line(&e)))?;
        Self::lower(&program.expression().expr)
    }

    /// Whether it holds of this step.
    pub(super) fn holds(&self, step: &StepView<'_>) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Compare(comparison, left, right) => {
                comparison.holds(left.of(step), right.of(step))
            }
            Self::Not(inner) => !inner.holds(step),
            Self::And(all) => all.iter().all(|inner| inner.holds(step)),
            Self::Or(any) => any.iter().any(|inner| inner.holds(step)),
        }
    }

    /// Whether the variable occurs in it.
    pub(super) fn reads(&self, variable: Variable) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Compare(_, left, right) => left.reads(variable) || right.reads(variable),
            Self::Not(inner) => inner.reads(variable),
            Self::And(inner) | Self::Or(inner) => inner.iter().any(|inner| inner.reads(variable)),
        }
    }

    fn lower(expr: &Expr) -> Result<Self, Fault> {
        let call = match expr {
            Expr::Literal(LiteralValue::Boolean(value)) => {
                return Ok(Self::Constant(*value.inner()));
            }
            Expr::Call(call) if call.target.is_none() => call,
            _ => return Err(wrong(expr, BOOLEAN)),
        };
        let all = || call.args.iter().map(|arg| Self::lower(&arg.expr)).collect::<Result<_, _>>();
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, _) => Ok(Self::And(all()?)),
            (operators::LOGICAL_OR, _) => Ok(Self::Or(all()?)),
            (operators::LOGICAL_NOT, [inner]) => Ok(Self::Not(Box::new(Self::lower(&inner.expr)?))),
            (name, [left, right]) => match Comparison::named(name) {
                Some(comparison) => {
                    let sides = (Number::lower(&left.expr)?, Number::lower(&right.expr)?);
                    Ok(Self::Compare(comparison, sides.0, sides.1))
                }
                None => Err(wrong(expr, BOOLEAN)),
            },
            _ => Err(wrong(expr, BOOLEAN)),
        }
    }
}

impl Number {
    fn of(&self, step: &StepView<'_>) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Variable(variable) => variable.of(step),
            Self::Minus(inner) => -inner.of(step),
            Self::Combine(operation, sides) => operation.of(sides[0].of(step), sides[1].of(step)),
        }
    }

    fn reads(&self, variable: Variable) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Variable(own) => *own == variable,
            Self::Minus(inner) => inner.reads(variable),
            Self::Combine(_, sides) => sides.iter().any(|side| side.reads(variable)),
        }
    }

    fn lower(expr: &Expr) -> Result<Self, Fault> {
        match expr {
            Expr::Literal(LiteralValue::Double(value)) => Ok(Self::Constant(*value.inner())),
            Expr::Literal(LiteralValue::Int(value)) => Ok(Self::Constant(*value.inner() as f64)),
            Expr::Literal(LiteralValue::UInt(value)) => Ok(Self::Constant(*value.inner() as f64)),
            Expr::Ident(name) => match VARIABLES.iter().find(|(known, _)| known == name) {
                Some((_, variable)) => Ok(Self::Variable(*variable)),
                None => Err(Fault::Unknown { name: name.clone() }),
            },
            Expr::Call(call) => Self::lower_call(expr, call),
            _ => Err(wrong(expr, NUMBER)),
        }
    }

    fn lower_call(expr: &Expr, call: &CallExpr) -> Result<Self, Fault> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::NEGATE, [inner]) => Ok(Self::Minus(Box::new(Self::lower(&inner.expr)?))),
            (name, [left, right]) => match Operation::named(name) {
                Some(operation) => {
                    let sides = [Self::lower(&left.expr)?, Self::lower(&right.expr)?];
                    Ok(Self::Combine(operation, Box::new(sides)))
                }
                None => Err(wrong(expr, NUMBER)),
            },
            _ => Err(wrong(expr, NUMBER)),
        }
    }
}

impl Variable {
    fn of(self, step: &StepView<'_>) -> f64 {
        match self {
            Self::Entropy => step.entropy().into(),
            Self::EntropyNormalised => step.entropy_normalised().into(),
            Self::MaxProbability => step.max_probability().into(),
            Self::Margin => step.margin().into(),
            Self::Head => step.head().into(),
            Self::Position => (step.position - step.prompt).into(),
            Self::Draw => step.draw(),
        }
    }
}

impl Comparison {
    fn named(operator: &str) -> Option<Self> {
        Some(match operator {
            operators::LESS => Self::Less,
            operators::LESS_EQUALS => Self::LessEqual,
            operators::GREATER => Self::Greater,
            operators::GREATER_EQUALS => Self::GreaterEqual,
            operators::EQUALS => Self::Equal,
            operators::NOT_EQUALS => Self::NotEqual,
            _ => return None,
        })
    }

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterEqual => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl Operation {
    fn named(operator: &str) -> Option<Self> {
        Some(match operator {
            operators::ADD => Self::Add,
            operators::SUBSTRACT => Self::Subtract,
            operators::MULTIPLY => Self::Multiply,
            operators::DIVIDE => Self::Divide,
            _ => return None,
        })
    }

    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
        }
    }
}

const BOOLEAN: &str = "condition";
const NUMBER: &str = "number";

/// What is wrong with an expression that is none of the wanted kind.
fn wrong(expr: &Expr, expected: &'static str) -> Fault {
    let found = match expr {
        Expr::Ident(name) if VARIABLES.iter().all(|(known, _)| known != name) => {
            return Fault::Unknown { name: name.clone() };
        }
        Expr::Ident(_)
        | Expr::Literal(LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_)) => {
            NUMBER
        }
        Expr::Literal(LiteralValue::Boolean(_)) => BOOLEAN,
        Expr::Literal(LiteralValue::String(_)) => "text",
        Expr::Call(call) => match call.func_name.as_str() {
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT => BOOLEAN,
            name if Comparison::named(name).is_some() => BOOLEAN,
            operators::NEGATE => NUMBER,
            name if Operation::named(name).is_some() => NUMBER,
            name => return Fault::Unsupported(name.to_owned()),
        },
        _ => return Fault::Unsupported("a list, a map, a field or a macro".to_owned()),
    };
    Fault::Type { expected, found }
}

/// The parser's errors, without the picture that it draws below.
fn one_line(errors: &cel::ParseErrors) -> String {
    errors.errors.first().map_or_else(|| "it is empty".to_owned(), |error| error.msg.clone())
}
