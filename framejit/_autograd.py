"""The node of torch's autograd graph that stands for one run of a compiled program. Imported when the first one is made."""
import torch


class Compiled(torch.autograd.Function):
    """Results that a program has made become results of this node; what it saved is checked by torch when backward reads it."""

    @staticmethod
    def forward(ctx, results, saved, backward, *inputs):
        ctx.set_materialize_grads(False)
        ctx.keeps = bool(saved)
        if saved:
            ctx.save_for_backward(*saved)
        ctx.run = backward
        return results

    @staticmethod
    def backward(ctx, *cotangents):
        # Where nothing was saved nothing is freed: eager lets such a node be used again.
        saved = ctx.saved_tensors if ctx.keeps else ()
        return (None, None, None, *ctx.run(saved, cotangents))


join = Compiled.apply
