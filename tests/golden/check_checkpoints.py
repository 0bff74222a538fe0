"""Shows that a checkpoint of the kit is what Keras would have: opens it with the package safetensors, builds its model in
tf_keras, and holds the two against each other.

The names must be Keras's, of the variables and of what the optimizer keeps beside them; with them tf_keras must give the
kit's predictions of test images, within 1e-5; and two updates more, by the checkpoint's optimizer from the state that it was
in, must lead both to the same weights and the same state, within 1e-4. (Where a ReLU or a max-pool is about to flip, tf_keras
comes to other gradients itself when its weights change by a rounding error. So other images are tried then, a few times:
names or states that were mistaken would differ with any images.) The kit's side is build/replay --restore. README.md tells how
to run this; no test of the kit needs it.

    python check_checkpoints.py                  checkpoints that the kit's programs write now: a table, in a few minutes
    python check_checkpoints.py CHECKPOINT ...   these, of a Wide ResNet, LeNet, the CIFAR-10 CNN or the perceptron
"""
import gzip
import os
import re
import subprocess
import sys
import tempfile

os.environ.update({"TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2",
                   "GOMP_SPINCOUNT": "10000"})

import numpy as np
from safetensors import SafetensorError, safe_open

from make_cases import (TOLERANCE, build_model, disagreement, make_optimizer, metadata, noise_only, train, variable_name,
                        write_safetensors)

PREDICTION_TOLERANCE = 1e-5
IMAGES = 1920  # that the kit's programs train on
PREDICTED, UPDATES, BATCH = 1000, 2, 4  # images to predict; updates, and the images of one
TRIES = 10  # sets of images

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
DATA = ("/usr/share/datasets/fashion-mnist", os.path.join(ROOT, "data"))
CIFAR10 = os.path.join(ROOT, "data", "cifar-10-batches-bin", "test_batch.bin")

# What tf_keras's optimizers call what they keep, by the names in checkpoints. Those are the names in tf_keras's older
# optimizers (tf_keras.optimizers.legacy). The accumulator of tf_keras's Adagrad begins with 0.1, the kit's with 0.
SLOTS = {
    "sgd": {"momentum": "m"},
    "adam": {"m": "m", "v": "v"},
    "adadelta": {"accum_grad": "accumulated_grad", "accum_var": "accumulated_delta_var"},
    "adagrad": {"accumulator": "accumulator"},
    "rmsprop": {"rms": "velocity", "momentum": "momentum"},
}
SETTINGS = {"sgd": ["momentum", "nesterov"], "adam": ["beta_1", "beta_2", "epsilon"], "adadelta": ["rho", "epsilon"],
            "adagrad": ["epsilon"], "rmsprop": ["rho", "momentum", "epsilon"]}
BEGINNING = {"adagrad": 0.1}


# --- What the kit's programs write --------------------------------------------------------------------------------------

# The trainer of the six steps saves nothing: it gets one line more, and momentum, so that there is something to save.
TRAINER = {
    "    fit(model, &(Fit){": "    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = args.checkpoint_dir}));\n"
                              "    fit(model, &(Fit){",
    "sgd(args.base_lr)": "sgd_momentum(args.base_lr, 0.9f, true)",
}


def refuse(line):
    """What can't be done, or can't be run."""
    print(f"check_checkpoints.py: {line}", file=sys.stderr)
    sys.exit(2)


def run(*words):
    """What a program prints; it has to end with status 0."""
    result = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        refuse(f"{' '.join(map(str, words))}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def build_trainer(folder):
    with open(os.path.join(ROOT, "solutions", "step_06.c"), encoding="utf-8") as file:
        source = file.read()
    for old, new in TRAINER.items():
        assert source.count(old) == 1, f"solutions/step_06.c should have one: {old}"
        source = source.replace(old, new)
    path = os.path.join(folder, "trainer.c")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    run(os.path.join(BUILD, "compile-step"), path, os.path.join(folder, "trainer"))
    return os.path.join(folder, "trainer")


def make_checkpoints(folder):
    """Has every program that knows --checkpoint-dir, and a model that build/replay knows, train for an epoch."""
    programs = ["lenet", "cifar10", "cnn", "mlp"]
    run("make", "-s", *(os.path.join(BUILD, name) for name in ["compile-step", *programs]))
    commands = [(name, [os.path.join(BUILD, name)]) for name in programs]
    trainer = build_trainer(folder)
    commands += [(f"Wide ResNet 16-{width}", [trainer, "--width", width]) for width in (1, 2)]
    for name, command in commands:
        place = os.path.join(folder, name.replace(" ", "-"))
        run(*command, "--images", IMAGES, "--epochs", 1, "--log-dir", os.path.join(folder, "logs"), "--checkpoint-dir", place)
        found = os.path.join(place, "shared", "ckpt-1.safetensors")  # build/lenet trains twice
        yield name, found if os.path.exists(found) else os.path.join(place, "ckpt-1.safetensors")


# --- Images --------------------------------------------------------------------------------------------------------------

def fashion_mnist(kind):
    """The pixels, or the labels, of the test set."""
    name = {"images": "t10k-images-idx3-ubyte", "labels": "t10k-labels-idx1-ubyte"}[kind]
    for folder in DATA:
        for path, opened in ((os.path.join(folder, name), open), (os.path.join(folder, name + ".gz"), gzip.open)):
            if os.path.exists(path):
                with opened(path, "rb") as file:
                    content = file.read()
                return np.frombuffer(content, np.uint8, offset=16 if kind == "images" else 8)
    refuse(f"no Fashion-MNIST in {' or '.join(DATA)}: run `make data`")


def test_images(shape):
    """Pixels, between 0 and 1, and labels: of CIFAR-10 where the shape is its and the file is there, else of Fashion-MNIST,
    with black around, in as many channels."""
    if shape == (32, 32, 3) and os.path.exists(CIFAR10):
        records = np.fromfile(CIFAR10, np.uint8).reshape(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32) / 255, records[:, 0]
    images = fashion_mnist("images").reshape(-1, 28, 28).astype(np.float32) / 255
    height, width, channels = shape
    images = np.pad(images, ((0, 0), (0, height - 28), (0, width - 28)))
    return np.repeat(images[..., np.newaxis], channels, axis=3), fashion_mnist("labels")


# --- A checkpoint in tf_keras ----------------------------------------------------------------------------------------------

class Checkpoint:
    """What the file says, and the model that it is of, as make_cases.py describes one."""

    def __init__(self, path):
        self.path = path
        try:
            with safe_open(path, "np") as file:
                self.says = file.metadata() or {}
                self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        except (OSError, SafetensorError) as fault:
            refuse(f"{path}: {fault}")
        if self.says.get("format") != "hvdlab-1" or "model" not in self.says:
            refuse(f"{path}: this is no checkpoint's main file")
        self.variables = {name for name in self.tensors if not name.startswith("optimizer/")}
        layers = self.says["model"]
        optimizer = self.says["optimizer"].lower()
        penalty = re.search(r"L2 penalty ([0-9.e-]+)", layers)
        self.spec = {
            "model": self.model_name(),
            "widths": self.widths(),
            "shape": tuple(map(int, re.match(r"layer 0: input, (\d+)x(\d+)x(\d+)\n", layers).groups())),
            "weight_decay": float(penalty[1]) if penalty else 0,
            "optimizer": optimizer,
            "learning_rate": float(self.says["learning_rate"]),
            "settings": {key: self.says[key] == "true" if key == "nesterov" else float(self.says[key])
                         for key in SETTINGS[optimizer]},
        }

    def kernels(self, kind):
        """Of the layers of that kind, in their order."""
        names = [name for name in self.variables if re.fullmatch(kind + r"(_\d+)?/kernel", name)]
        return [self.tensors[name] for name in sorted(names, key=lambda name: (len(name), name))]

    def model_name(self):
        layers = len(self.kernels("conv2d")), len(self.kernels("dense"))
        known = {(16, 1): "wrn", (2, 2): "lenet", (0, 3): "mlp"}  # the CNN for CIFAR-10 is a LeNet, too
        if layers not in known:
            refuse(f"{self.path}: a model of {layers[0]} convolutions and {layers[1]} dense layers is none of make_cases.py")
        return known[layers]

    def widths(self):
        convolutions = [kernel.shape[-1] for kernel in self.kernels("conv2d")]
        hidden = [kernel.shape[-1] for kernel in self.kernels("dense")][:-1]
        return [convolutions[i] for i in (0, 1, 6, 11)] if len(convolutions) > 2 else convolutions + hidden

    def load(self):
        """The model and its optimizer in tf_keras, in the state that was saved."""
        model, optimizer = build_model(self.spec), make_optimizer(self.spec)
        optimizer.build(model.trainable_variables)
        names = {variable_name(v) for v in model.variables}
        self.check_names(names, self.variables)
        for variable in model.variables:
            variable.assign(self.tensors[variable_name(variable)])
        optimizer.iterations.assign(int(self.says["iterations"]))
        slots = dict(self.slots(optimizer))
        self.check_names(set(slots), set(self.tensors) - self.variables)
        for name, variable in slots.items():
            variable.assign(self.tensors[name] + BEGINNING.get(self.spec["optimizer"], 0))
        return model, optimizer

    def check_names(self, keras, saved):
        if keras != saved:
            sys.exit(f"{self.path}: these names are not in both: {', '.join(sorted(keras ^ saved))}")

    def slots(self, optimizer):
        """(name in a checkpoint, variable of tf_keras) for all that the optimizer keeps beside the weights."""
        for kit, keras in SLOTS[self.spec["optimizer"]].items():
            for variable in optimizer.variables:
                if variable.name.startswith(keras + "/"):
                    yield f"optimizer/{kit}/" + variable_name(variable).removeprefix(keras + "/"), variable


# --- Holding the two against each other ---------------------------------------------------------------------------------------

def replay(checkpoint, folder, case, *words):
    """What build/replay computes from the checkpoint, under the names of a case."""
    path, out = os.path.join(folder, "case"), os.path.join(folder, "out")
    write_safetensors(path, case, metadata(checkpoint.spec))
    run(os.path.join(BUILD, "replay"), path, "--restore", checkpoint.path, "--out", out, "--tolerance", 1000, *words)
    with safe_open(out, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def compare_predictions(checkpoint, folder, model, images):
    """The largest difference of a probability, and how many images get another class."""
    import tensorflow as tf
    expected = tf.nn.softmax(model(images, training=False)).numpy()
    computed = replay(checkpoint, folder, {"x": images[np.newaxis]})["prediction"]
    return np.abs(computed - expected).max(), (computed.argmax(1) != expected.argmax(1)).sum()


def compare_updates(checkpoint, folder, images, labels):
    """The largest error after some updates, of the weights and of what the optimizer keeps, as build/replay measures it."""
    model, optimizer = checkpoint.load()
    x = images.reshape(UPDATES, BATCH, *images.shape[1:])
    y = labels.astype(np.int32).reshape(UPDATES, BATCH)
    loss, _ = train(model, optimizer, x, y)
    saved = os.path.join(folder, "saved.safetensors")
    computed = replay(checkpoint, folder, {"x": x, "y": y}, "--save", saved)
    with safe_open(saved, "np") as file:
        computed.update({"final/" + name: file.get_tensor(name) for name in file.keys() if name not in checkpoint.variables})
    exact = [v for v in model.variables if variable_name(v) not in noise_only(model)]
    expected = {"final/" + variable_name(v): v.numpy() for v in exact}
    weights = disagreement(computed, {"loss": loss, **expected})
    slots = {"final/" + name: v.numpy() - BEGINNING.get(checkpoint.spec["optimizer"], 0)
             for name, v in checkpoint.slots(optimizer) if name.split("/", 2)[2] not in noise_only(model)}
    return weights, disagreement(computed, slots)


def try_updates(checkpoint, folder, images, labels):
    """With one set of images after another, until the two agree: the errors, and how many sets it took."""
    for number in range(1, TRIES + 1):
        these = slice(number * UPDATES * BATCH, (number + 1) * UPDATES * BATCH)
        errors = compare_updates(checkpoint, folder, images[these], labels[these])
        if max(error for error, _ in errors) <= TOLERANCE:
            break
    return *errors, number


def check(name, path):
    """Prints a line of the table; true where all agrees."""
    checkpoint = Checkpoint(path)
    model, _ = checkpoint.load()
    images, labels = test_images(checkpoint.spec["shape"])
    with tempfile.TemporaryDirectory() as folder:
        difference, others = compare_predictions(checkpoint, folder, model, images[:PREDICTED])
        weights, slots, tries = try_updates(checkpoint, folder, images, labels)
    kept = len(checkpoint.tensors) - len(checkpoint.variables)
    print(f"| {name} | {checkpoint.says['optimizer']}, {checkpoint.says['iterations']} | {len(checkpoint.variables)} + {kept} | "
          f"{difference:.1e} ({others}) | {weights[0]:.1e} | {slots[0]:.1e} | {tries} |", flush=True)
    for error, tensor in (weights, slots):
        if error > TOLERANCE:
            print(f"{path}: {tensor.removeprefix('final/')} differs by {error:.1e}, with {TRIES} sets of images",
                  file=sys.stderr)
    return difference <= PREDICTION_TOLERANCE and others == 0 and max(weights[0], slots[0]) <= TOLERANCE


def main(paths):
    run("make", "-s", os.path.join(BUILD, "replay"))
    print("| checkpoint | optimizer, updates | tensors | prediction | weights | kept by the optimizer | sets of images |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = [(path, path) for path in paths] or make_checkpoints(folder)
        agree = [check(name, path) for name, path in checkpoints]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main([os.path.abspath(path) for path in sys.argv[1:]]))
