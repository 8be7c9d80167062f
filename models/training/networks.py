"""The networks of the router heads, with the parameter names of their makers: R2R's (arXiv 2505.21600) and CITER's (arXiv 2502.01976)."""
import torch
from torch import nn


def score(outputs):
    """The probability that a network's outputs stand for: of the only class, or of the last of three."""
    return outputs.sigmoid()[:, 0] if outputs.size(1) == 1 else outputs.softmax(-1)[:, 2]


def backbone(widths, outputs, expansion):
    block = lambda i, o: nn.ModuleDict({
        "layer_norm": nn.LayerNorm(i),
        "mlp": nn.Sequential(nn.Linear(i, expansion * i), nn.GELU(), nn.Dropout(0.1), nn.Linear(expansion * i, o), nn.Dropout(0.1)),
        "dim_change": nn.Linear(i, o) if i != o else nn.Identity(),
    })
    last = widths[-1]
    return nn.ModuleDict({
        "input_projection": nn.Linear(widths[0], widths[0]),
        "blocks": nn.ModuleList(block(i, o) for i, o in zip(widths, widths[1:] + [last])),
        "output_layer": nn.Sequential(nn.LayerNorm(last), nn.Linear(last, outputs)),
    })


def through(parts, x):
    x = parts["input_projection"](x)
    for block in parts["blocks"]:
        x = block["dim_change"](x) + block["mlp"](block["layer_norm"](x))
    return parts["output_layer"](x)


class Network(nn.Module):
    """Any of R2R's networks, from what it reads: h(idden), t(oken), l(ogits), or o(wn logits).

    `sizes` are those of hidden states, vocabulary and logits.
    """

    def __init__(self, reads, sizes, widths, outputs=1, expansion=2, normalised=False):
        super().__init__()
        hidden, vocabulary, logits = sizes
        self.reads, self.normalised = reads, normalised
        pair = {"layer_norm_hidden_states": hidden, "layer_norm_token": hidden} if len(reads) > 1 else {"layer_norm": hidden}
        if normalised:
            for name, width in pair.items():
                if name != "layer_norm_token" or "t" in reads:
                    setattr(self, name, nn.LayerNorm(width))
        if "t" in reads:
            self.token_embeddings = nn.Embedding(vocabulary, hidden)
        if reads == "l":
            self.logits_projection = nn.Linear(logits, widths[0])
        elif "l" in reads:
            self.logits_projection = nn.Linear(logits, hidden)
        if reads == "h":
            self.hidden_states_projection = nn.Linear(hidden, widths[0])
        elif reads == "o":
            self.lm_head = nn.Linear(hidden, vocabulary)
            self.post_lm_projection = nn.Linear(8, widths[0])
        elif len(reads) > 1:
            self.combined_projection = nn.Linear(hidden * len(reads), widths[0])
        self.backbone = backbone(widths, outputs, expansion)

    def forward(self, hidden, token, top):
        if self.normalised:
            top = top.softmax(-1)
            hidden = (self.layer_norm_hidden_states if len(self.reads) > 1 else getattr(self, "layer_norm", nn.Identity()))(hidden)
        if self.reads == "l":
            x = self.logits_projection(top)
        elif self.reads == "h":
            x = self.hidden_states_projection(hidden)
        elif self.reads == "o":
            x = self.post_lm_projection(self.lm_head(hidden).topk(8, -1).values)
        else:
            parts = [hidden]
            if "t" in self.reads:
                embedded = self.token_embeddings(token)
                parts.append(self.layer_norm_token(embedded) if self.normalised else embedded)
            if "l" in self.reads:
                parts.append(self.logits_projection(top))
            x = self.combined_projection(torch.cat(parts, -1))
        return through(self.backbone, x)


class Citer(nn.Module):
    """CITER's perceptron."""

    def __init__(self, hidden):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.BatchNorm1d(2 * hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2 * hidden, hidden), nn.Dropout(0.1))
        self.linear = nn.Linear(hidden, 1)

    def forward(self, hidden, token, top):
        return self.linear(self.mlp(hidden))
