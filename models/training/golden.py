"""Makes the golden files of the router heads: checkpoints of random weights as their makers save them, and the scores that PyTorch gives.

    python golden.py --out ../../engine/tests/heads

Writes a `.pt` for each of R2R's networks and a `.pth` of CITER's, `golden.safetensors` with the inputs and
each network's scores, and two pickles that want to execute something.
"""
import argparse
import os
import pickle
import zipfile

import torch
from safetensors.torch import save_file

from networks import Citer, Network, score

HIDDEN, VOCABULARY, LOGITS = SIZES = 12, 40, 16


CASES = {
    "hidden-token-logits": ("HiddenStatesTokenLMHeadLogitsClassifier", "htl", [10, 14], 1, False),
    "hidden-token-logits-normalised": ("HiddenStatesTokenLMHeadLogitsClassifier", "htl", [10], 1, True),
    "hidden-token": ("HiddenStatesTokenLMHeadClassifier", "ht", [10], 1, True),
    "hidden-logits": ("HiddenStatesLogitsClassifier", "hl", [8, 8], 1, True),
    "hidden": ("HiddenStatesClassifier", "h", [8], 3, True),
    "own-logits": ("HiddenStatesClassifierWithLMHead", "o", [8], 1, False),
    "logits": ("LogitsClassifier", "l", [8], 3, True),
}


def shake(network):
    """Norms, biases and running statistics must matter."""
    with torch.no_grad():
        for name, tensor in list(network.named_parameters()) + list(network.named_buffers()):
            if tensor.dim() == 1 and tensor.is_floating_point():
                tensor.add_(0.3 * torch.randn_like(tensor))
            elif tensor.dim() == 2:
                tensor.mul_(2)
            if "running_var" in name:
                tensor.abs_().add_(0.1)


class Evil:
    def __reduce__(self):
        return os.system, ("touch tokenrouter-was-here",)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    folder = parser.parse_args().out
    torch.manual_seed(7)
    hidden, token = 2 * torch.randn(6, HIDDEN), torch.randint(0, VOCABULARY, (6,))
    logits, embedding = 4 * torch.randn(6, VOCABULARY), torch.randn(VOCABULARY, HIDDEN)
    top = logits.topk(LOGITS, -1).values
    out = {"hidden": hidden, "token": token, "logits": logits, "embedding": embedding}
    for name, (kind, reads, widths, outputs, normalised) in CASES.items():
        network = Network(reads, SIZES, widths, outputs, normalised=normalised).eval()
        shake(network)
        state = network.state_dict()
        if name == "hidden-token-logits":
            # The short form of a checkpoint leaves the table to the model.
            network.token_embeddings.weight.data.copy_(embedding)
            del state["token_embeddings.weight"]
        if name == "hidden-logits":
            # A view with strides of its own, and half precision.
            state["combined_projection.weight"] = network.combined_projection.weight.data.t().contiguous().t()
            network.logits_projection.bias.data.copy_(network.logits_projection.bias.data.half())
            state["logits_projection.bias"] = network.logits_projection.bias.data.half()
        arguments = {"hidden_states_size": HIDDEN, "logits_size": LOGITS, "hidden_dims": widths, "expansion_factor": 2,
                     "normalize_input": normalised, "dtype": torch.float32, "pretrained_model_name": None}
        what = {"h": "hidden_states", "t": "token", "l": "logits", "o": "hidden_states"}
        common = {"threshold": 0.405, "input_type": [what[read] for read in reads]}
        specific = {"epoch": 300, "note": (widths, widths), "rate": 1e-4, "large": 1 << 40}
        torch.save({"model_type": kind, "init_args": arguments, "common_args": common, "model_specific_args": specific, "state_dict": state},
                   f"{folder}/{name}.pt")
        with torch.no_grad():
            out[f"score.{name}"] = score(network(hidden, token, top))
    citer = Citer(HIDDEN).eval()
    shake(citer)
    torch.save(citer.state_dict(), f"{folder}/citer.pth")
    with torch.no_grad():
        out["score.citer"] = score(citer(hidden, token, top))
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, f"{folder}/golden.safetensors")
    for name, value in {"evil": Evil(), "evil-within": {"model_type": "LogitsClassifier", "init_args": {"logits_size": Evil()}}}.items():
        with zipfile.ZipFile(f"{folder}/{name}.pt", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))


if __name__ == "__main__":
    main()
