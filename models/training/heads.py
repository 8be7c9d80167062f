"""Trains the demo family's router heads on what `decisions.py` collected.

    python heads.py r2r --models .. --decisions decisions.pt --out r2r.pt
    python heads.py citer --models .. --decisions decisions.pt --out citer.pth
    python heads.py co-llm --models .. --decisions decisions.pt --out ../small-co-llm

The first two write checkpoints in their makers' form, for `tokenrouter convert-head`; the third a whole model. Each then tries
thresholds on the first 200 held-out problems: accuracy, and the share of tokens that large writes.
"""
import argparse
import json
import math
import os
import random
import shutil
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from decisions import EOS, MOST, Family, groups, step
from networks import Citer, Network, score

LOGITS = 100
DEFER = "<|defer|>"
# What a token of large's costs, in nats. Without it large, which is the better one nearly everywhere, is asked nearly everywhere.
COST = 0.1


def fit(network, loss, count, epochs, rate, size=4096):
    """Trains on `count` rows; `loss` takes the indices of a batch."""
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=rate, weight_decay=0.01)
    steps, done = epochs * (count // size), 0
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(count).split(size)[: count // size]:
            for group in optimizer.param_groups:
                group["lr"] = rate * (0.5 + 0.5 * math.cos(math.pi * done / steps))
            value = loss(batch)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
            total, done = total + value.item(), done + 1
        print(f"epoch {epoch}: loss {total / max(1, count // size):.5f}", flush=True)


def report(scores, labels):
    """How few positions are routed where a given share of the positive ones is."""
    order = scores.argsort(descending=True)
    found = labels[order].cumsum(0) / labels.sum()
    for recall in (0.8, 0.9, 0.95, 0.99):
        routed = int((found < recall).sum()) + 1
        print(f"recall {recall}: {routed / len(labels):.4f} routed, score {scores[order[routed - 1]]:.4f}", flush=True)


def rounded(network):
    """The network in the precision it is stored in: weights that bfloat16 holds exactly."""
    for tensor in list(network.parameters()) + list(network.buffers()):
        if tensor.is_floating_point():
            tensor.data.copy_(tensor.data.bfloat16())
    return network.eval()


def stored(network):
    return {name: t.bfloat16() if t.is_floating_point() else t for name, t in network.state_dict().items()}


def r2r(family, data, out):
    data, widths, expansion = data["free"], [64, 64], 2
    vocabulary, hidden = family.small.lm_head.weight.shape
    network = Network("htl", (hidden, vocabulary, LOGITS), widths, expansion=expansion)
    network.token_embeddings.weight = torch.nn.Parameter(family.small.get_input_embeddings().weight.detach().clone(), requires_grad=False)
    train = int(0.95 * len(data["diverges"]))
    take = lambda at: (data["hidden"][at], data["token"][at], data["top"][at])
    weight = torch.tensor(4.0)
    network.train()
    fit(network, lambda at: F.binary_cross_entropy_with_logits(network(*take(at))[:, 0], data["diverges"][at], pos_weight=weight), train, 16, 3e-3)
    rounded(network)
    with torch.no_grad():
        report(score(network(*take(slice(train, None)))), data["diverges"][train:])
    state = stored(network)
    # The table is small's own.
    del state["token_embeddings.weight"]
    arguments = {"hidden_states_size": hidden, "logits_size": LOGITS, "hidden_dims": widths, "expansion_factor": expansion,
                 "dropout_rate": 0.1, "normalize_input": False, "freeze_lm_head": True}
    common = {"threshold": None, "input_type": ["hidden_states", "token", "logits"]}
    torch.save({"model_type": "HiddenStatesTokenLMHeadLogitsClassifier", "init_args": arguments, "common_args": common,
                "model_specific_args": {}, "state_dict": state}, out)
    routed = lambda hidden, token, logits, thr: score(network(hidden, token, logits.topk(LOGITS, -1).values)) >= thr
    sweep(family, routed, [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7])


def citer(family, data, out):
    data = data["forced"]
    network = Citer(data["hidden"].size(1))
    train = int(0.95 * len(data["fine"]))
    weights = 1.0 + 3.0 * (1.0 - data["fine"])
    network.train()
    fit(network, lambda at: F.binary_cross_entropy_with_logits(network(data["hidden"][at], None, None)[:, 0], data["fine"][at], weight=weights[at]), train, 16, 3e-3)
    rounded(network)
    with torch.no_grad():
        report(-score(network(data["hidden"][train:], None, None)), 1.0 - data["fine"][train:])
    torch.save(stored(network), out)
    sweep(family, lambda hidden, token, logits, thr: score(network(hidden, token, logits)) < thr, [0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])


def forced_texts(data):
    """Per reply its tokens, the place of its first one, and large's probability of each true token."""
    chances = [[] for _ in data["texts"]]
    for text, chance in zip(data["text"].tolist(), data["large"].tolist()):
        chances[text].append(chance)
    return [(prompt + reply, len(prompt), chance) for (prompt, reply, _), chance in zip(data["texts"], chances)]


def co_llm(family, data, out, folder):
    """A row for the defer token, then all of small with it, so that the two models together are likely to write the true text."""
    data, model = data["forced"], family.small
    vocabulary, hidden = model.lm_head.weight.shape
    vector = torch.nn.Linear(hidden, 1, bias=False)
    torch.nn.init.zeros_(vector.weight)
    wrong = (1.0 - data["small_right"]) * data["large_right"]
    fit(vector, lambda at: F.binary_cross_entropy_with_logits(vector(data["hidden"][at])[:, 0], wrong[at], pos_weight=torch.tensor(8.0)), len(wrong), 3, 3e-2)
    texts = forced_texts(data)
    batches = list(groups([tokens for tokens, _, _ in texts], 48))
    model.train()
    parameters = list(model.parameters()) + list(vector.parameters())
    optimizer, rounds, done, rng = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01), 4, 0, random.Random(0)
    for epoch in range(rounds):
        rng.shuffle(batches)
        start, total = time.time(), 0.0
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, done / 100) * (0.5 + 0.5 * math.cos(math.pi * done / (rounds * len(batches))))
            tokens = torch.tensor([texts[i][0] for i in batch])
            states = model.model(input_ids=tokens).last_hidden_state
            mine = F.log_softmax(model.lm_head(states[:, :-1]), -1).gather(2, tokens[:, 1:, None])[..., 0]
            defers = vector(states[:, :-1])[..., 0]
            losses = []
            for place, index in enumerate(batch):
                first, large = texts[index][1] - 1, torch.tensor(texts[index][2])
                own, ask = mine[place, first:], defers[place, first:]
                both = torch.logaddexp(F.logsigmoid(-ask) + own, F.logsigmoid(ask) + large.clamp_min(1e-9).log())
                losses.append(COST * ask.sigmoid() - both)
            value = torch.cat(losses).mean()
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            total, done = total + value.item(), done + 1
        print(f"round {epoch}: loss {total / len(batches):.5f}, {time.time() - start:.0f} s", flush=True)
    rounded(model), rounded(vector)
    write_variant(model, vector.weight.detach(), f"{folder}/small", out)
    sweep(family, lambda hidden, token, logits, thr: vector(hidden).sigmoid()[:, 0] > thr, [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5])


def write_variant(model, vector, small, out):
    """Small's folder with other weights and one more token, whose row is the vector."""
    os.makedirs(out, exist_ok=True)
    vocabulary = model.lm_head.weight.size(0)
    names = load_file(f"{small}/model.safetensors").keys()
    state = model.state_dict()
    tensors = {name: state[name].bfloat16().contiguous() for name in names}
    tensors["model.embed_tokens.weight"] = torch.cat([tensors["model.embed_tokens.weight"], vector.bfloat16()])
    save_file(tensors, f"{out}/model.safetensors", {"format": "pt"})
    config = json.load(open(f"{small}/config.json")) | {"vocab_size": vocabulary + 1}
    json.dump(config, open(f"{out}/config.json", "w"), indent=2)
    tokenizer = json.load(open(f"{small}/tokenizer.json"))
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    tokenizer["added_tokens"].append({"id": vocabulary, "content": DEFER} | plain)
    json.dump(tokenizer, open(f"{out}/tokenizer.json", "w"), indent=2, ensure_ascii=False)
    for name in ("tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(f"{small}/{name}", f"{out}/{name}")


@torch.no_grad()
def sweep(family, routed, thresholds):
    """Accuracy and share of large's tokens on the first 200 held-out problems, where large writes one token whenever small's is routed."""
    for threshold in thresholds:
        right = written = helped = 0
        prompts = [family.prompt(problem["question"]) for problem in family.problems]
        for indices in groups(prompts):
            tokens, caches, alive = torch.tensor([prompts[i] for i in indices]), [None, None], torch.ones(len(indices), dtype=torch.bool)
            replies = [[] for _ in indices]
            for _ in range(MOST):
                mine, hidden, caches[0] = step(family.small, tokens, caches[0])
                other, _, caches[1] = step(family.large, tokens, caches[1])
                own = mine.argmax(-1)
                ask = routed(hidden, own, mine, threshold)
                token = torch.where(ask, other.argmax(-1), own)
                written, helped = written + int(alive.sum()), helped + int((alive & ask).sum())
                for place in range(len(indices)):
                    if alive[place]:
                        replies[place].append(int(token[place]))
                alive &= token != EOS
                tokens = token[:, None]
                if not alive.any():
                    break
            right += sum(family.right(reply, family.problems[i]["answer"]) for reply, i in zip(replies, indices))
        print(f"threshold {threshold}: accuracy {right / len(prompts):.3f}, large writes {helped / written:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("head", choices=["r2r", "citer", "co-llm"])
    parser.add_argument("--models", required=True)
    parser.add_argument("--decisions", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    family = Family(arguments.models)
    with open(f"{arguments.models}/problems.jsonl") as file:
        family.problems = [json.loads(line) for line in file][:200]
    data = torch.load(arguments.decisions)
    if arguments.head == "co-llm":
        return co_llm(family, data, arguments.out, arguments.models)
    {"r2r": r2r, "citer": citer}[arguments.head](family, data, arguments.out)


if __name__ == "__main__":
    main()
