"""Collects what the demo models decide on generated questions: the data that router heads learn from.

    python decisions.py --models .. --out decisions.pt --questions 6000

Two sets, none of whose questions is one of the held-out problems:

- `free`: positions of replies that `small` and `large` write together. Half of the replies are large's alone; in the
  others small writes while its normalised entropy is at most a bound drawn for each reply. Only replies with the right answer
  count. The label says whether small's token there would have diverged: after it, `large` alone no longer finds the answer.
- `forced`: positions of the corpus' own replies, with the probability that each model gives to the true token. `fine`
  says whether small may write there: its token is the true one, or neither model's is and small alone still finds the answer.
"""
import argparse
import json
import math
import random
import time

import torch
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from corpus import dialogue

EOS = 2
MOST = 140
BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2]


class Family:
    """The models that decide, and their one tokenizer."""

    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(f"{folder}/small/tokenizer.json")
        load = lambda name: Qwen3ForCausalLM.from_pretrained(f"{folder}/{name}", dtype=torch.float32).eval()
        self.small, self.large = load("small"), load("large")

    def prompt(self, question):
        return self.tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids

    def right(self, tokens, answer):
        return f"The answer is {answer}." in self.tokenizer.decode(tokens, skip_special_tokens=False)


def step(model, tokens, cache):
    """Logits and lm_head inputs at the last of `tokens`, and the cache after them."""
    out = model.model(input_ids=tokens, past_key_values=cache, use_cache=True)
    hidden = out.last_hidden_state[:, -1]
    return model.lm_head(hidden), hidden, out.past_key_values


def groups(rows, most=384):
    """Indices of rows of equal length, so that no batch needs padding."""
    by_length = {}
    for index, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(index)
    for _, indices in sorted(by_length.items()):
        for start in range(0, len(indices), most):
            yield indices[start : start + most]


def entropy(logits):
    """Normalised entropy."""
    logs = torch.log_softmax(logits, -1)
    return -(logs.exp() * logs).sum(-1) / math.log(logits.size(-1))


@torch.no_grad()
def finish(model, prefixes):
    """Greedy continuations of the prefixes, without the end of sequence."""
    done = [[] for _ in prefixes]
    for indices in groups(prefixes):
        tokens, cache, alive = torch.tensor([prefixes[i] for i in indices]), None, torch.ones(len(indices), dtype=torch.bool)
        for _ in range(MOST):
            logits, _, cache = step(model, tokens, cache)
            tokens = logits.argmax(-1, keepdim=True)
            alive &= tokens[:, 0] != EOS
            if not alive.any():
                break
            for place, index in enumerate(indices):
                if alive[place]:
                    done[index].append(int(tokens[place]))
    return done


@torch.no_grad()
def write_together(family, prompts, bounds):
    """Replies in lockstep; per reply its tokens, and per position what both models would write with small's signals."""
    replies, records = [[] for _ in prompts], [[] for _ in prompts]
    for indices in groups(prompts):
        bound = torch.tensor([bounds[i] for i in indices])
        tokens, caches, alive = torch.tensor([prompts[i] for i in indices]), [None, None], torch.ones(len(indices), dtype=torch.bool)
        for _ in range(MOST):
            mine, hidden, caches[0] = step(family.small, tokens, caches[0])
            other, _, caches[1] = step(family.large, tokens, caches[1])
            own, wanted = mine.argmax(-1), other.argmax(-1)
            written = torch.where(entropy(mine) <= bound, own, wanted)
            top = mine.topk(100).values
            for place, index in enumerate(indices):
                if alive[place]:
                    replies[index].append(int(written[place]))
                    records[index].append((int(own[place]), int(wanted[place]), hidden[place].clone(), top[place].clone()))
            alive &= written != EOS
            tokens = written[:, None]
            if not alive.any():
                break
    return replies, records


def collect_free(family, problems, rng):
    prompts = [family.prompt(question) for question, _, _ in problems]
    bounds = [-1.0 if rng.random() < 0.5 else rng.choice(BOUNDS) for _ in problems]
    replies, records = write_together(family, prompts, bounds)
    rows, asked = [], []
    for (_, _, answer), prompt, reply, record in zip(problems, prompts, replies, records):
        if not family.right(reply, answer):
            continue
        for at, (own, wanted, hidden, top) in enumerate(record):
            row = dict(hidden=hidden, top=top, token=own, diverges=0.0)
            # A token that was written and did no harm diverges no more than an equal one.
            if own != wanted and own != reply[at]:
                asked.append((row, prompt + reply[:at] + [own], len(prompt), answer))
            rows.append(row)
    print(f"free: {len(rows)} positions, {len(asked)} to be judged", flush=True)
    open_ends = [index for index, (_, prefix, _, _) in enumerate(asked) if prefix[-1] != EOS]
    finished = dict(zip(open_ends, finish(family.large, [asked[i][1] for i in open_ends])))
    for index, (row, prefix, start, answer) in enumerate(asked):
        row["diverges"] = float(not family.right(prefix[start:] + finished.get(index, []), answer))
    return stack(rows)


@torch.no_grad()
def collect_forced(family, problems):
    rows, asked, texts = [], [], []
    for number, (question, reply, answer) in enumerate(problems):
        prompt = family.prompt(question)
        texts.append((prompt, family.tokenizer.encode(reply).ids + [EOS], answer))
    whole = [prompt + reply for prompt, reply, _ in texts]
    for indices in groups(whole, 96):
        tokens = torch.tensor([whole[i] for i in indices])
        hidden = family.small.model(input_ids=tokens).last_hidden_state
        mine, other = family.small.lm_head(hidden), family.large(input_ids=tokens).logits
        own, wanted = mine.argmax(-1), other.argmax(-1)
        target = tokens[:, 1:, None]
        chances = [logits[:, :-1].softmax(-1).gather(2, target)[..., 0] for logits in (mine, other)]
        for place, index in enumerate(indices):
            prompt, reply, answer = texts[index]
            for at in range(len(prompt) - 1, len(whole[index]) - 1):
                true, mine_at, other_at = whole[index][at + 1], int(own[place, at]), int(wanted[place, at])
                row = dict(hidden=hidden[place, at].clone(), small=float(chances[0][place, at]), large=float(chances[1][place, at]),
                           small_right=float(mine_at == true), large_right=float(other_at == true), fine=float(mine_at == true), text=index)
                if mine_at != true and other_at != true and mine_at != EOS:
                    asked.append((row, whole[index][: at + 1] + [mine_at], len(prompt), answer))
                rows.append(row)
    print(f"forced: {len(rows)} positions, {len(asked)} to be judged", flush=True)
    for (row, prefix, start, answer), rest in zip(asked, finish(family.small, [prefix for _, prefix, _, _ in asked])):
        row["fine"] = float(family.right(prefix[start:] + rest, answer))
    return stack(rows) | {"texts": texts}


def stack(rows):
    column = lambda name: [row[name] for row in rows]
    return {name: torch.stack(column(name)) if torch.is_tensor(rows[0][name]) else torch.tensor(column(name)) for name in rows[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True, help="the folder of small, large and problems.jsonl")
    parser.add_argument("--out", required=True)
    parser.add_argument("--questions", type=int, default=6000, help="for each of the two sets")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    family = Family(arguments.models)
    with open(f"{arguments.models}/problems.jsonl") as file:
        held_out = {json.loads(line)["question"] for line in file}
    rng = random.Random("router heads")
    problems = []
    while len(problems) < 2 * arguments.questions:
        problem = dialogue(rng)
        if problem[0] not in held_out:
            problems.append(problem)
    start = time.time()
    forced = collect_forced(family, problems[arguments.questions :])
    print(f"{time.time() - start:.0f} s", flush=True)
    free = collect_free(family, problems[: arguments.questions], rng)
    print(f"{time.time() - start:.0f} s; {free['diverges'].mean():.4f} diverge, {1 - forced['fine'].mean():.4f} are not fine", flush=True)
    torch.save({"free": free, "forced": forced}, arguments.out)


if __name__ == "__main__":
    main()
