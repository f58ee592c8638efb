"""Write a two-layer llama of random weights that has another model's tokenizer and chat template:
`python random_model.py real.gguf random.gguf`, inside the server's environment.

Its words mean nothing. What is asked of it is real: it counts, refuses, caches and takes its time
as a real model does, a hundred times faster, in a window of any size.
"""

# The server's environment has what is imported here, not the one where types are checked.
# pyright: basic, reportMissingImports=false
import sys

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, INNER = 128, 2, 4, 256
WINDOW = 131_072
SEED = 7


def main(source: str, target: str) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    words = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer.add_vocab_size(words)
    _add_weights(writer, words)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_weights(writer: gguf.GGUFWriter, words: int) -> None:
    random = np.random.default_rng(SEED)

    def matrix(name: str, rows: int, columns: int) -> None:
        weights = random.standard_normal((rows, columns), dtype=np.float32) / columns**0.5
        writer.add_tensor(f"{name}.weight", weights.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))

    matrix("token_embd", words, WIDTH)
    matrix("output", words, WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}", WIDTH, WIDTH)
        norm(f"blk.{layer}.ffn_norm")
        matrix(f"blk.{layer}.ffn_gate", INNER, WIDTH)
        matrix(f"blk.{layer}.ffn_up", INNER, WIDTH)
        matrix(f"blk.{layer}.ffn_down", WIDTH, INNER)


if __name__ == "__main__":
    main(*sys.argv[1:])
