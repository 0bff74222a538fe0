"""Loads weights that the kit saved into the same Wide ResNet in PyTorch, and counts the test images that it has right.

    python in_pytorch.py FILE [DATA_FOLDER]

As in Keras, images have their channels last, and a kernel is (height, width, in, out); PyTorch wants (out, in, height, width).
A dense kernel is (in, out), as in x @ kernel; PyTorch's linear() wants (out, in). So both are transposed.
"""
import gzip
import sys
import numpy as np
import torch
from safetensors.numpy import load_file
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, max_pool2d

FOLDER = sys.argv[2] if len(sys.argv) > 2 else "/usr/share/datasets/fashion-mnist"


def read(name, offset):
    with gzip.open(f"{FOLDER}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


weights = {name: torch.from_numpy(value) for name, value in load_file(sys.argv[1]).items()}
number = {"conv2d": 0, "batch_normalization": 0}  # of the next layer of each kind


def layer(kind):
    """The variables of the next one: conv2d, conv2d_1, ..."""
    name = f"{kind}_{number[kind]}" if number[kind] else kind
    number[kind] += 1
    return {key[len(name) + 1:]: value for key, value in weights.items() if key.startswith(name + "/")}


def convolution(x):
    v = layer("conv2d")
    return conv2d(x, v["kernel"].permute(3, 2, 0, 1), v["bias"], padding="same")


def cbr(x):
    x, v = convolution(x), layer("batch_normalization")
    return batch_norm(x, v["moving_mean"], v["moving_variance"], v["gamma"], v["beta"], eps=0.001).relu()


def network(x):
    number.update(dict.fromkeys(number, 0))
    x = cbr(x)
    for group in range(3):
        x = convolution(x) + cbr(cbr(x))  # in a block the 1x1 convolution comes first
        x = x + cbr(cbr(x))
        x = max_pool2d(x, 2) if group < 2 else x.mean((2, 3))
    return linear(x, weights["dense/kernel"].T, weights["dense/bias"])


pixels = read("train-images-idx3", 16)
images = (read("t10k-images-idx3", 16).astype(np.float32) - np.float32(pixels.mean())) / np.float32(pixels.std() + 1e-6)
images, labels = torch.from_numpy(images.reshape(-1, 1, 28, 28)), torch.from_numpy(read("t10k-labels-idx1", 8).astype(np.int64))
with torch.inference_mode():
    logits = torch.cat([network(part) for part in images.split(100)])
print(f"Test loss: {cross_entropy(logits.double(), labels):.7f}")
print(f"Right: {int((logits.argmax(1) == labels).sum())} of {len(labels)}")
