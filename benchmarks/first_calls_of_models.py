"""How long the first call of public models takes: processor seconds of the forward with an empty kernel cache, beside eager's first call.

    python benchmarks/first_calls_of_models.py [words] [--layers 6,12,24] [--train] [--worst 12] [--timings]

Models of the `transformers` package and of torch.nn, narrow but as deep as they are used, with random weights, in evaluation. Words choose those
whose names contain one. --layers makes them of each depth (rows whose depth is one number). --train measures forward and backward. Each
call is made in a forked process of its own after torch and transformers are imported and something else was compiled; the compiler's work in
the background counts. Sorted by processor time, the worst first.
"""
import argparse
import os
import pickle
import re
import sys
import tempfile
import time
import traceback
import warnings

import torch
import transformers

WIDTH = dict(hidden_size=32, num_attention_heads=4, intermediate_size=48)
TEXT = dict(WIDTH, vocab_size=60, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def tokens(length=24, batch=2):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(length))


def floats(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def public(name, model="Model", inputs=None, **config):
    module = getattr(transformers, name + model)(getattr(transformers, name + "Config")(**config))
    return module, inputs or dict(input_ids=tokens())


def encoder(name, **more):
    return lambda layers: public(name, num_hidden_layers=layers, **{**TEXT, **more})


def causal(name, **more):
    return lambda layers: public(name, "ForCausalLM", dict(input_ids=tokens(), use_cache=False), num_hidden_layers=layers, **{**TEXT, **more})


def vision(name, size=32, **more):
    return lambda layers: public(name, inputs=dict(pixel_values=floats(1, 3, size, size)), num_hidden_layers=layers, image_size=size, patch_size=8,
        **{**WIDTH, **more})


def pyramid(name, size=64, inputs=None, **more):
    return lambda depths: public(name, inputs=inputs or dict(pixel_values=floats(1, 3, size, size)), depths=depths, **more)


def t5(name="T5"):
    return lambda layers: public(name, "ForConditionalGeneration", dict(input_ids=tokens(), decoder_input_ids=tokens(9), use_cache=False),
                                 vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=layers, num_heads=4)


def pairs(name, inputs=None, **more):
    return lambda layers: public(name, inputs=inputs or dict(input_ids=tokens(), decoder_input_ids=tokens(9), use_cache=False), **{**dict(
        vocab_size=60, d_model=32, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1), **more})


def whisper(layers):
    return pairs("Whisper", dict(input_features=floats(1, 8, 40), decoder_input_ids=tokens(9, 1), use_cache=False), max_source_positions=20,
                 max_target_positions=64, num_mel_bins=8)(layers)


def clip(layers):
    parts = dict(text_config=dict(TEXT, num_hidden_layers=layers), vision_config=dict(WIDTH, num_hidden_layers=layers, image_size=32, patch_size=8))
    return public("CLIP", inputs=dict(input_ids=tokens(), pixel_values=floats(2, 3, 32, 32)), projection_dim=32, **parts)


def speech(name, **more):
    return lambda layers: public(name, inputs=dict(input_values=floats(1, 4000)), **{**dict(
        WIDTH, vocab_size=32, num_hidden_layers=layers, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
        layerdrop=0.0), **more})


def reformer(layers):
    return public("Reformer", "Model", dict(input_ids=tokens(64)), attention_head_size=8, attn_layers=["local", "lsh"] * (layers // 2),
                  axial_pos_embds=False, hidden_size=32, feed_forward_size=48, num_attention_heads=4, vocab_size=60, max_position_embeddings=64,
                  num_buckets=4, lsh_attn_chunk_length=16, local_attn_chunk_length=16, is_decoder=False, hash_seed=1)


def detr(layers):
    backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[3, 4, 6, 3], layer_type="bottleneck",
        out_features=["stage4"])
    config = transformers.DetrConfig(use_timm_backbone=False, backbone=None, use_pretrained_backbone=False, backbone_config=backbone, d_model=32,
                                     encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=48, decoder_ffn_dim=48,
                                     encoder_attention_heads=4, decoder_attention_heads=4,
                                     num_queries=10)
    return transformers.DetrForObjectDetection(config), dict(pixel_values=floats(1, 3, 64, 64))


def perceiver(layers):
    config = transformers.PerceiverConfig(d_model=32, d_latents=32, num_latents=16, num_blocks=1, num_self_attends_per_block=layers,
        num_self_attention_heads=4,
                                          num_cross_attention_heads=4, vocab_size=60, max_position_embeddings=64)
    return transformers.PerceiverModel(config), dict(inputs=floats(2, 24, 32))


class Residual(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(width, width // 2, 1), torch.nn.BatchNorm2d(width // 2), torch.nn.ReLU(),
                                          torch.nn.Conv2d(width // 2, width // 2, 3, padding=1), torch.nn.BatchNorm2d(width // 2), torch.nn.ReLU(),
                                          torch.nn.Conv2d(width // 2, width, 1), torch.nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.layers(x))


class Dense(torch.nn.Module):
    """DenseNet: each layer takes everything before it."""

    def __init__(self, layers, growth=4):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.BatchNorm2d(8 + i * growth), torch.nn.ReLU(),
        torch.nn.Conv2d(8 + i * growth, growth, 3, padding=1))
                                          for i in range(layers))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Down(torch.nn.Module):
    """U-Net: a level of it around the levels below."""

    def __init__(self, width, inner):
        super().__init__()
        block = lambda a, b: torch.nn.Sequential(*(layer for i in range(3) for layer in (torch.nn.Conv2d(a if i == 0 else b, b, 3, padding=1),
        torch.nn.GroupNorm(2, b), torch.nn.SiLU())))
        self.before, self.inner, self.after = block(width, width), inner, block(2 * width, width)
        self.down, self.up = torch.nn.Conv2d(width, width, 3, 2, 1), torch.nn.ConvTranspose2d(width, width, 2, 2)

    def forward(self, x):
        x = self.before(x)
        return self.after(torch.cat([x, self.up(self.inner(self.down(x)))], 1))


def unet(levels):
    module = torch.nn.SiLU()
    for _ in range(levels):
        module = Down(8, module)
    return module, (floats(1, 8, 64, 64),)


class Encoder(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), layers, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(x)


MOE = dict(num_key_value_heads=2, num_experts_per_tok=2)
# name: (depth, what makes the module and its inputs of this depth)
MODELS = {
    "bert": (24, encoder("Bert")), "roberta": (12, encoder("Roberta")), "albert": (12, encoder("Albert", embedding_size=16)),
    "electra": (12, encoder("Electra", embedding_size=16)), "deberta-v2": (24, encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c",
        "c2p"], position_buckets=16)),
    "deberta": (12, encoder("Deberta", relative_attention=True, pos_att_type=["p2c", "c2p"])), "roformer": (12, encoder("RoFormer")),
    "mpnet": (12, encoder("MPNet")), "convbert": (12, encoder("ConvBert", embedding_size=32)), "squeezebert": (12, encoder("SqueezeBert",
        embedding_size=32)),
    "longformer": (12, encoder("Longformer", attention_window=8)), "big_bird": (12, lambda layers: public("BigBird",
        inputs=dict(input_ids=tokens(96)), num_hidden_layers=layers, block_size=8, num_random_blocks=1, **TEXT)),
    "fnet": (12, encoder("FNet")), "yoso": (12, encoder("Yoso", use_expectation=True)),
    "xlnet": (12, lambda layers: public("XLNet", vocab_size=60, d_model=32, n_layer=layers, n_head=4, d_inner=48)),
    "funnel": ([4, 4, 4], lambda sizes: public("Funnel", vocab_size=60, block_sizes=sizes, d_model=32, n_head=4, d_head=8, d_inner=48)),
    "reformer": (12, reformer), "canine": (12, lambda layers: public("Canine", inputs=dict(input_ids=tokens(64)), num_hidden_layers=layers,
        **{**TEXT, "max_position_embeddings": 128})),
    "modernbert": (22, encoder("ModernBert", reference_compile=False)),
    "gpt2": (24, lambda layers: public("GPT2", "LMHeadModel", dict(input_ids=tokens(), use_cache=False), vocab_size=60, n_embd=32, n_layer=layers,
        n_head=4, n_positions=32)),
    "gpt_neo": (24, lambda layers: public("GPTNeo", "ForCausalLM", dict(input_ids=tokens(), use_cache=False), vocab_size=60, hidden_size=32,
        num_layers=layers, num_heads=4, attention_types=[[["global", "local"], layers // 2]], max_position_embeddings=64)),
    "gpt_neox": (24, causal("GPTNeoX")), "gptj": (24, lambda layers: public("GPTJ", "ForCausalLM", dict(input_ids=tokens(), use_cache=False),
        vocab_size=60, n_embd=32, n_layer=layers, n_head=4, n_positions=64, rotary_dim=4)),
    "opt": (24, causal("OPT", ffn_dim=48, word_embed_proj_dim=32)), "bloom": (24, causal("Bloom", n_head=4)), "falcon": (32, causal("Falcon")),
        "phi": (32, causal("Phi")),
    "llama": (32, causal("Llama", num_key_value_heads=2)), "mistral": (32, causal("Mistral", num_key_value_heads=2)), "qwen2": (28, causal("Qwen2",
        num_key_value_heads=2)),
    "gemma": (28, causal("Gemma", num_key_value_heads=1, head_dim=8)), "gemma2": (26, causal("Gemma2", num_key_value_heads=1, head_dim=8)),
        "olmo": (16, causal("Olmo", num_key_value_heads=2)),
    "stablelm": (24, causal("StableLm", num_key_value_heads=2)), "mixtral": (32, causal("Mixtral", num_local_experts=8, **MOE)),
    "qwen2_moe": (24, causal("Qwen2Moe", num_experts=16, moe_intermediate_size=32, shared_expert_intermediate_size=32, **MOE)), "olmoe": (16,
        causal("Olmoe", num_experts=16, **MOE)),
    "mamba": (24, lambda layers: public("Mamba", inputs=dict(input_ids=tokens(), use_cache=False), vocab_size=60, hidden_size=32, state_size=8,
        num_hidden_layers=layers, use_associative_scan=False)),
    "mamba_scan": (24, lambda layers: public("Mamba", inputs=dict(input_ids=tokens(), use_cache=False), vocab_size=60, hidden_size=32,
        state_size=8, num_hidden_layers=layers)),
    "mamba2": (24, lambda layers: public("Mamba2", inputs=dict(input_ids=tokens(), use_cache=False), vocab_size=60, hidden_size=32, state_size=8,
        num_hidden_layers=layers, num_heads=8, head_dim=8, n_groups=1, chunk_size=8)),
    "rwkv": (24, lambda layers: public("Rwkv", inputs=dict(input_ids=tokens(), use_cache=False), vocab_size=60, hidden_size=32,
        num_hidden_layers=layers, attention_hidden_size=32)),
    "t5": (12, t5()), "mt5": (12, t5("MT5")), "bart": (12, pairs("Bart")), "pegasus": (12, pairs("Pegasus")), "marian": (6, pairs("Marian")),
        "led": (6, pairs("LED", attention_window=8, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64)),
    "prophetnet": (12, lambda layers: public("ProphetNet", inputs=dict(input_ids=tokens(), decoder_input_ids=tokens(9), use_cache=False),
        vocab_size=60, hidden_size=32, num_encoder_layers=layers, num_decoder_layers=layers, num_encoder_attention_heads=4,
        num_decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)),
    "whisper": (12, whisper), "wav2vec2": (12, speech("Wav2Vec2")), "hubert": (12, speech("Hubert")), "wavlm": (12, speech("WavLM")), "sew": (12,
        speech("SEW", conv_kernel=(10, 3, 3, 3, 3, 2, 2), conv_stride=(5, 2, 2, 2, 2, 2, 2))),
    "unispeech": (12, speech("UniSpeech")), "data2vec_audio": (12, speech("Data2VecAudio", conv_pos_kernel_size=5)),
    "vit": (24, vision("ViT")), "deit": (12, vision("DeiT")), "beit": (12, vision("Beit", use_relative_position_bias=True)), "dinov2": (24,
        vision("Dinov2")), "vit_mae": (12, vision("ViTMAE", decoder_hidden_size=32, decoder_num_attention_heads=4)),
    "siglip": (12, lambda layers: public("Siglip", inputs=dict(input_ids=tokens(), pixel_values=floats(2, 3, 32, 32)), text_config=dict(TEXT,
        num_hidden_layers=layers), vision_config=dict(WIDTH, num_hidden_layers=layers, image_size=32, patch_size=8))),
    "clip": (12, clip), "swin": ([2, 2, 18, 2], lambda depths: public("Swin", inputs=dict(pixel_values=floats(1, 3, 64, 64)), image_size=64,
        patch_size=2, embed_dim=8, depths=depths, num_heads=[2, 2, 4, 4], window_size=4)),
    "swinv2": ([2, 2, 18, 2], lambda depths: public("Swinv2", inputs=dict(pixel_values=floats(1, 3, 64, 64)), image_size=64, patch_size=2,
        embed_dim=8, depths=depths, num_heads=[2, 2, 4, 4], window_size=4)),
    "convnext": ([3, 3, 27, 3], pyramid("ConvNext", hidden_sizes=[8, 16, 16, 32])), "convnextv2": ([3, 3, 27, 3], pyramid("ConvNextV2",
        hidden_sizes=[8, 16, 16, 32])),
    "resnet-152": ([3, 8, 36, 3], pyramid("ResNet", embedding_size=8, hidden_sizes=[8, 16, 32, 32])), "regnet": ([2, 5, 13, 1], pyramid("RegNet",
        embedding_size=8, hidden_sizes=[8, 16, 32, 32], groups_width=8)),
    "segformer": ([3, 8, 27, 3], pyramid("Segformer", hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4])), "pvt": ([3, 4, 6, 3],
        pyramid("Pvt", image_size=64, hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4])),
    "poolformer": ([2, 2, 6, 2], pyramid("PoolFormer", hidden_sizes=[8, 16, 16, 32])), "focalnet": ([2, 2, 6, 2], pyramid("FocalNet",
        image_size=64, patch_size=4, embed_dim=8)),
    "mobilenet_v2": (0, lambda _: public("MobileNetV2", inputs=dict(pixel_values=floats(1, 3, 64, 64)), depth_multiplier=0.35)), "mobilevit": (0,
        lambda _: public("MobileViT", inputs=dict(pixel_values=floats(1, 3, 64, 64)), image_size=64, hidden_sizes=[16, 16, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32])),
    "efficientnet": (0, lambda _: public("EfficientNet", inputs=dict(pixel_values=floats(1, 3, 64, 64)), width_coefficient=0.25,
        depth_coefficient=2.0, hidden_dim=320)), "levit": (0, lambda _: public("Levit", inputs=dict(pixel_values=floats(1, 3, 64, 64)),
        image_size=64)),
    "detr": (6, detr), "perceiver": (26, perceiver),
    "nn: resnet": (50, lambda layers: (torch.nn.Sequential(*(Residual(16) for _ in range(layers))), (floats(1, 16, 16, 16),))),
    "nn: densenet": (40, lambda layers: (Dense(layers), (floats(1, 8, 16, 16),))), "nn: unet": (5, unet), "nn: encoder": (24,
        lambda layers: (Encoder(layers), (floats(2, 24, 32),))),
    "nn: lstm": (8, lambda layers: (torch.nn.LSTM(32, 32, layers, batch_first=True, bidirectional=True), (floats(2, 24, 32),))),
    "nn: mlp": (100, lambda layers: (torch.nn.Sequential(*(part for _ in range(layers) for part in (torch.nn.Linear(32, 32),
        torch.nn.LayerNorm(32), torch.nn.GELU()))), (floats(8, 32),))),
}


def loss_of(output):
    while not isinstance(output, torch.Tensor):
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output.float().square().mean()


def measure(name, layers, system, options):
    """(processor seconds, wall seconds, what is to be said) of the first call, in this process."""
    said = []
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, inputs = MODELS[name][1](layers)
    module.train(options.train)
    arguments, keywords = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    call = module
    if system == "framejit":
        import framejit

        framejit.compile(lambda x: x + 1)(torch.ones(3))
        framejit.set_logs("timings", sink=lambda artifact, text: said.append(text))
        call = framejit.compile(module)
    torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
    with torch.set_grad_enabled(options.train):
        busy, started = time.process_time(), time.perf_counter()
        output = call(*arguments, **keywords)
        if options.train:
            loss_of(output).backward()
        wall = time.perf_counter() - started
        rest = time.process_time()
        while system == "framejit":  # what the compiler does in the background
            time.sleep(0.15)
            before, rest = rest, time.process_time()
            if rest - before < 0.01:
                break
    note = ""
    if system == "framejit":
        report = framejit.explain(call).so_far()
        note = f"{len(report.graphs)} graphs of {len(said)} traces, {len(report.breaks)} breaks"
        if options.timings:
            note += "\n" + "\n".join(said)
    return rest - busy, wall, note


def in_child(name, layers, system, options):
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory() as cache:
        child = os.fork()
        if child == 0:
            os.environ["FRAMEJIT_CACHE_FOLDER"] = cache
            warnings.simplefilter("ignore")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                result = measure(name, layers, system, options)
            except BaseException:
                result = traceback.format_exc().strip().splitlines()[-1]
            with os.fdopen(writer, "wb") as file:
                pickle.dump(result, file)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
    return pickle.loads(data) if data else "the process ended"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--layers", help="depths, with commas between them")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--worst", type=int, default=1000, help="how many rows are shown")
    parser.add_argument("--timings", action="store_true", help="show what FRAMEJIT_LOGS=timings says")
    options = parser.parse_args()
    rows = []
    for name, (depth, _) in MODELS.items():
        if options.words and not any(word in name for word in options.words):
            continue
        for layers in [int(part) for part in options.layers.split(",")] if options.layers and isinstance(depth, int) else [depth]:
            ours, eager = (in_child(name, layers, system, options) for system in ("framejit", "eager"))
            if isinstance(ours, str) or isinstance(eager, str):
                print(f"{name} {layers}: {ours}; {eager}", file=sys.stderr)
                continue
            rows.append((ours[0],
            f"{name + ' ' + re.sub(' ', '', str(layers)):30}{ours[0]:8.2f}{ours[1]:8.2f}{eager[0]:8.2f}{eager[1]:8.2f}   {ours[2]}"))
            print(rows[-1][1], file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row[0])
    print(f"{'seconds: processor, wall':30}{'framejit':>16}{'eager':>16}")
    print("\n".join(row[1] for row in rows[:options.worst]))
    if rows:
        print(f"median of {len(rows)}: {sorted(row[0] for row in rows)[len(rows) // 2]:.2f}")


if __name__ == "__main__":
    main()
