"""Loads weights that the kit saved into the same Wide ResNet in Keras, and counts the test images that it has right.

    KERAS_BACKEND=torch python in_keras.py FILE [DATA_FOLDER]

The kit has Keras's order of axes: images have their channels last, a kernel is (height, width, in, out), a dense kernel (in, out).
So each variable is loaded as it is, under its own name.
"""
import gzip
import sys
import keras
import numpy as np
from keras import layers
from safetensors.numpy import load_file

FOLDER = sys.argv[2] if len(sys.argv) > 2 else "/usr/share/datasets/fashion-mnist"


def read(name, offset):
    with gzip.open(f"{FOLDER}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


weights = load_file(sys.argv[1])
number = {"conv2d": 0, "batch_normalization": 0}  # of the next layer of each kind


def name(kind):
    """Of the next one: conv2d, conv2d_1, ..."""
    number[kind] += 1
    return f"{kind}_{number[kind] - 1}" if number[kind] > 1 else kind


def convolution(x):
    own = name("conv2d")
    size, _, _, filters = weights[own + "/kernel"].shape
    return layers.Conv2D(filters, size, padding="same", name=own)(x)


def cbr(x):
    x = convolution(x)
    return layers.ReLU()(layers.BatchNormalization(epsilon=0.001, name=name("batch_normalization"))(x))


image = x = keras.Input((28, 28, 1))
x = cbr(x)
for group in range(3):
    x = layers.Add()([convolution(x), cbr(cbr(x))])  # in a block the 1x1 convolution comes first
    x = layers.Add()([x, cbr(cbr(x))])
    x = layers.MaxPooling2D()(x) if group < 2 else layers.GlobalAveragePooling2D()(x)
model = keras.Model(image, layers.Dense(10, name="dense")(x))
for layer in model.layers:
    for variable in layer.weights:
        variable.assign(weights[f"{layer.name}/{variable.name}"])

pixels = read("train-images-idx3", 16)
images = (read("t10k-images-idx3", 16).astype(np.float32) - np.float32(pixels.mean())) / np.float32(pixels.std() + 1e-6)
labels = read("t10k-labels-idx1", 8)
logits = model.predict(images.reshape(-1, 28, 28, 1), batch_size=100, verbose=0).astype(np.float64)
logits -= logits.max(1, keepdims=True)
loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]
print(f"Test loss: {loss.mean():.7f}")
print(f"Right: {int((logits.argmax(1) == labels).sum())} of {len(labels)}")
