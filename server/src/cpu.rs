//! Whether this processor can run the program at all. The build uses instructions that older ones lack; without this
//! check they would end the process with an illegal instruction and no word.
//!
//! The standard library's own detection is of no use here: a build for these instructions takes them for granted.

/// What the build needs, as the kernel names it.
const NEEDED: [&str; 5] = ["avx2", "fma", "bmi1", "bmi2", "f16c"];

/// Looks at this processor.
///
/// # Errors
/// What it lacks, in words for the user.
pub fn check() -> Result<(), String> {
    // Where the system does not tell, nothing can be said before the fact.
    let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else { return Ok(()) };
    let missing = missing(&text);
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "this processor lacks {}, which the program was built for; build it yourself without the target-cpu line in \
         .cargo/config.toml, or use a processor made since about 2013",
        missing.join(", ")
    ))
}

fn missing(cpuinfo: &str) -> Vec<&'static str> {
    let Some(line) = cpuinfo.lines().find(|line| line.starts_with("flags")) else {
        return Vec::new();
    };
    NEEDED
        .into_iter()
        .filter(|needed| !line.split_whitespace().any(|flag| flag == *needed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let old = "processor: 0\nflags\t\t: fpu sse4_2 avx bmi1 f16c\nflags\t\t: avx2 fma\n";
        assert_eq!(missing(old), ["avx2", "fma", "bmi2"]);
        assert!(missing("flags : avx2 fma bmi1 bmi2 f16c avx512f").is_empty());
        assert!(missing("Features : asimd").is_empty(), "another architecture");
    }
}
