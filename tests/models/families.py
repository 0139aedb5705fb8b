"""The table of model families that the tests run: models of the `transformers` package and convolution networks, small, with random weights.

FAMILIES: what makes the module and the keyword arguments of a call, by name. The arguments have labels where a model has a loss of its own.
`run_family` runs one against eager, in evaluation and in training, holds it to PIECES, and says how it was captured; docs/coverage.md has
the table of all of them.
"""
import collections
import contextlib
import copy

import pytest

import framejit

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
transformers = pytest.importorskip("transformers", reason="the transformers package is not installed")

from convolution_nets import VGG, DenseNet, ShuffleNet, UNet  # noqa: E402


def tokens(length=7, batch=2):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(length))


def image(size, batch=2):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(size))


TEXT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=32,
            bos_token_id=1, eos_token_id=2)
PATCHES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4)


def text(name, model="Model", **more):
    config = getattr(transformers, name + "Config")(**{**TEXT, **more})
    return getattr(transformers, name + model)(config), dict(input_ids=tokens())


def causal(name, **more):
    module, inputs = text(name, "ForCausalLM", **more)
    return module, dict(inputs, labels=tokens(), use_cache=False)


def masked(name, **more):
    module, inputs = text(name, "ForMaskedLM", **more)
    return module, dict(inputs, labels=tokens())


def vision(name, size=16, **more):
    config = getattr(transformers, name + "Config")(**more)
    return getattr(transformers, name + "Model")(config), dict(pixel_values=image(size, batch=1))


def classifier(name, size=16, **more):
    config = getattr(transformers, name + "Config")(num_labels=3, **more)
    return getattr(transformers, name + "ForImageClassification")(config), dict(pixel_values=image(size), labels=torch.tensor([0, 2]))


def convolutions(made):
    """With weights that keep the size of what goes through: nothing would come out of twenty layers of small ones in evaluation."""
    module, inputs = made
    for part in module.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
            torch.nn.init.kaiming_normal_(part.weight)
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.ones_(part.weight)
    return module, inputs


def with_mask(made):
    module, inputs = made
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, 5:] = 0
    return module, dict(inputs, attention_mask=mask)


def gpt2():
    config = transformers.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(config), dict(input_ids=tokens(), labels=tokens(), use_cache=False)


def t5():
    config = transformers.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return (transformers.T5ForConditionalGeneration(config),
            dict(input_ids=tokens(), decoder_input_ids=tokens(5), labels=tokens(5), use_cache=False))


SEQUENCES = dict(vocab_size=60, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                 encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)


def bart():
    config = transformers.BartConfig(max_position_embeddings=32, forced_eos_token_id=None, **SEQUENCES)
    return (transformers.BartForConditionalGeneration(config),
            dict(input_ids=tokens(), decoder_input_ids=tokens(5), labels=tokens(5), use_cache=False))


def whisper():
    config = transformers.WhisperConfig(max_source_positions=20, max_target_positions=20, num_mel_bins=8, **SEQUENCES)
    features = torch.randn(1, 8, 40, generator=torch.Generator().manual_seed(0))
    return (transformers.WhisperForConditionalGeneration(config),
            dict(input_features=features, decoder_input_ids=tokens(5, 1), labels=tokens(5, 1), use_cache=False))


def clip():
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=PATCHES, projection_dim=16)
    return transformers.CLIPModel(config), dict(input_ids=tokens(), pixel_values=image(16), return_loss=True)


def wav2vec2():
    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.0,
        layerdrop=0.0)
    return transformers.Wav2Vec2Model(config), dict(input_values=torch.randn(1, 400, generator=torch.Generator().manual_seed(0)))


def mamba(**more):
    config = transformers.MambaConfig(vocab_size=60, hidden_size=32, state_size=8, num_hidden_layers=2, **more)
    return transformers.MambaForCausalLM(config), dict(input_ids=tokens(), labels=tokens(), use_cache=False)


def switch():
    config = transformers.SwitchTransformersConfig(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, num_decoder_layers=2, num_experts=4)
    return transformers.SwitchTransformersModel(config), dict(input_ids=tokens(24), decoder_input_ids=tokens(24))


TRANSFORMERS = {
    "bert": lambda: masked("Bert"),
    "bert_with_mask": lambda: with_mask(text("Bert")),
    "roberta": lambda: masked("Roberta", pad_token_id=0),
    "distilbert": lambda: (transformers.DistilBertModel(transformers.DistilBertConfig(
        vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=32)), dict(input_ids=tokens())),
    "gpt2": gpt2,
    "llama": lambda: causal("Llama", num_key_value_heads=2),
    "mistral": lambda: causal("Mistral", num_key_value_heads=2, sliding_window=4),
    "qwen2": lambda: causal("Qwen2", num_key_value_heads=2),
    "gemma": lambda: causal("Gemma", num_key_value_heads=1, head_dim=8),
    "mixtral": lambda: causal("Mixtral", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    "t5": t5,
    "bart": bart,
    "switch": switch,
    "nystromformer": lambda: (text("Nystromformer", num_landmarks=8, segment_means_seq_len=24)[0], dict(input_ids=tokens(24))),
    "mamba": lambda: mamba(use_associative_scan=False),
    "mamba_scan": lambda: mamba(),
    "whisper": whisper,
    "wav2vec2": wav2vec2,
    "vit": lambda: classifier("ViT", **PATCHES),
    "swin": lambda: vision("Swin", image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 2], window_size=4),
    "clip": clip,
}
CONVOLUTIONS = {
    "resnet": lambda: convolutions(classifier("ResNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")),
    "vgg": lambda: convolutions((VGG(), dict(image=image(16)))),
    "densenet": lambda: convolutions((DenseNet(), dict(image=image(16)))),
    "mobilenet_v2": lambda: convolutions(classifier("MobileNetV2", 64, depth_multiplier=0.25, min_depth=4, depth_divisible_by=4)),
    "efficientnet": lambda: convolutions(classifier(
        "EfficientNet", 64, width_coefficient=0.25, depth_coefficient=0.1, depth_divisor=4, hidden_dim=320)),
    "shufflenet_v2": lambda: convolutions((ShuffleNet(), dict(image=image(64)))),
    "convnext": lambda: convolutions(classifier("ConvNext", 32, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
    "unet": lambda: convolutions((UNet(), dict(image=image(16)))),
}
FAMILIES = {**TRANSFORMERS, **CONVOLUTIONS}

# Graphs and breaks of what is not one graph without a break, by family and whether it is trained.
PIECES = {
    # The first call notes the kind of the loss in the configuration, which makes the second call another graph.
    **{(family, training): (2, []) for family in ("vit", "resnet", "mobilenet_v2", "efficientnet", "convnext") for training in (False, True)},
    # These would raise if they were told of a compiler. What they do instead iterates, and breaks inside in each function that leads there,
    # and reads tokens.
    **{("switch", training): (3, ["CannotRebuild"] * 9 + ["UnknownCall"]) for training in (False, True)},
    # Looks for padding among its tokens, and raises if it is told of a compiler: it adds the mask that it is then given to fewer rows.
    **{("nystromformer", training): (2, ["BranchOnData"]) for training in (False, True)},
    # Sets `requires_grad` of a tensor that it was given or has just made, which only torch can do. What is around that has a context
    # variable then, since it is not whole and so is not told of a compiler.
    ("wav2vec2", True): (2, ["UnsupportedObject", "CannotRebuild", "UnknownCall"]),
}
Outcome = collections.namedtuple("Outcome", "model graphs breaks recompiles")
RESULTS = {}


def tensors(value, path=""):
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from tensors(item, f"{path}.{name}")
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from tensors(item, f"{path}[{i}]")


def loss_of(output):
    """The model's own, or a sum of all results with a weight for each element: the plain sum of what a norm gives has no gradient."""
    if isinstance(output, dict) and "loss" in output:
        return output["loss"]
    results = [value for _, value in tensors(output) if value.is_floating_point()]
    return sum((value * torch.linspace(1, 2, value.numel()).reshape(value.shape)).mean() for value in results)


def same_gradients(ours, eager):
    """Within rounding, which networks with batch norms enlarge: a part of each gradient's largest element, and of the largest of all."""
    largest = max(p.grad.abs().max() for p in eager.parameters() if p.grad is not None).item()
    assert largest > 1e-3, "no gradient to compare"
    for (name, e), o in zip(eager.named_parameters(), ours.parameters()):
        assert (o.grad is None) == (e.grad is None), name
        if e.grad is not None:
            assert o.grad.stride() == e.grad.stride(), name
            bound = 5e-4 * e.grad.abs().max().item() + 1e-6 * largest
            torch.testing.assert_close(o.grad, e.grad, rtol=0, atol=bound, msg=lambda m: f"gradient of {name}: {m}")


@contextlib.contextmanager
def one_thread():
    """Arrays this small are slower on several, ten times where others want the processor too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class EagerFails(Exception):
    """The installed package's own code fails on a family's inputs."""


def in_eager(family, module, inputs):
    try:
        return module(**inputs)
    except Exception as error:
        raise EagerFails(f"{family} fails in eager: {error!r}") from error


@one_thread()
def run_family(family, training):
    """Two calls, in training each with a backward: results, gradients, buffers and the generator of random numbers are eager's.

    Raises EagerFails where there is nothing to compare with."""
    framejit.reset()
    torch.manual_seed(0)
    eager, inputs = FAMILIES[family]()
    eager.train(training)
    ours = copy.deepcopy(eager)
    compiled = framejit.compile(ours)
    with torch.set_grad_enabled(training):
        for seed in range(2):
            outputs, states = [], []
            for module in (eager, ours):
                torch.manual_seed(seed)
                module.zero_grad()
                outputs.append(in_eager(family, eager, inputs) if module is eager else compiled(**inputs))
                if training:
                    loss_of(outputs[-1]).backward()
                states.append(torch.get_rng_state())
            assert torch.equal(*states), "the generator was left in another state"
            assert type(outputs[0]) is type(outputs[1])
            expected, actual = (list(tensors(output)) for output in outputs)
            assert [path for path, _ in expected] == [path for path, _ in actual]
            for (path, e), (_, o) in zip([*expected, *eager.named_buffers()], [*actual, *ours.named_buffers()]):
                assert o.stride() == e.stride() and o.requires_grad == e.requires_grad, path
                torch.testing.assert_close(o, e, rtol=1e-4, atol=1e-4, msg=lambda m: f"{path}: {m}")
            if training:
                same_gradients(ours, eager)
    info, report = framejit.cache_info(), framejit.explain(compiled).so_far()
    assert info["internal_errors"] == 0 and info["eager_replays"] == 0 and not report.fallbacks, report
    RESULTS[family, training] = Outcome(type(eager).__name__, len(report.graphs), report.breaks, len(report.recompiles))
    assert (len(report.graphs), [b.name for b in report.breaks]) == PIECES.get((family, training), (1, [])), report
    return RESULTS[family, training]
