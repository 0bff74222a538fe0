"""Makes the golden cases: a few updates of each model, as tf_keras computes them.

Maintainers run this, with the packages of requirements.txt; students and `make test` only read what it wrote. README.md
tells what a case holds. Each case is computed by tf_keras without oneDNN, with it, and a few times without it from
weights and images that differ by a rounding error. A case is written only if all agree to a quarter of what the tests
allow; otherwise the next seed is tried, because a ReLU or a max-pool that flips would make the case chaotic.

    python make_cases.py            all cases, into cases/
    python make_cases.py NAME ...   these only
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 1e-4
SEEDS = range(1, 100)
NUDGE = 5e-7  # relative; a few units in the last place of a float32
NUDGES = 10  # how many times a case is computed from nudged values
CLASSES = 10

HERE = os.path.dirname(os.path.abspath(__file__))
CASES_DIR = os.path.join(HERE, "cases")


def case(model, widths, shape, batch, updates, optimizer, learning_rate, weight_decay=0.0, kernels=True, **settings):
    """One entry of CASES. `settings` are optimizer arguments that differ from tf_keras's defaults; `kernels=False` leaves
    convolutions' final/.../kernel out of the file."""
    return dict(model=model, widths=widths, shape=shape, batch=batch, updates=updates, optimizer=optimizer,
                learning_rate=learning_rate, weight_decay=weight_decay, kernels=kernels, settings=settings)


# Widths: wrn: first convolution, three groups. lenet and cnn: two convolutions, hidden dense layer. mlp: two hidden layers.
# bag_of_words: vocabulary and dimension; its x are token numbers, as floats.
# Shapes are cut down to keep the files small; odd and unequal numbers are there to catch padding and swapped dimensions.
CASES = {
    "wrn_sgd": case("wrn", (16, 16, 32, 64), (28, 28, 1), 2, 2, "sgd", 0.001, kernels=False),
    "wrn_momentum": case("wrn", (3, 5, 9, 17), (12, 16, 1), 2, 2, "sgd", 0.001, momentum=0.9),
    "wrn_nesterov": case("wrn", (4, 4, 8, 16), (12, 12, 1), 2, 2, "sgd", 0.001, momentum=0.9, nesterov=True),
    "wrn_adadelta": case("wrn", (4, 4, 8, 16), (8, 8, 1), 2, 2, "adadelta", 0.001),
    "wrn_adagrad": case("wrn", (4, 8, 8, 12), (12, 12, 1), 2, 2, "adagrad", 0.001),
    "wrn_rmsprop": case("wrn", (4, 4, 8, 16), (8, 8, 1), 2, 2, "rmsprop", 0.0005),
    "wrn_decay": case("wrn", (4, 4, 8, 16), (12, 12, 1), 2, 2, "sgd", 0.001, weight_decay=0.01),

    "lenet_sgd": case("lenet", (8, 12, 24), (28, 28, 1), 8, 5, "sgd", 0.05),
    "lenet_momentum": case("lenet", (5, 7, 19), (14, 14, 1), 8, 5, "sgd", 0.02, momentum=0.9),
    "lenet_adam": case("lenet", (8, 12, 24), (16, 16, 1), 8, 5, "adam", 0.001),
    "lenet_rmsprop": case("lenet", (4, 8, 16), (12, 12, 1), 2, 2, "rmsprop", 0.001),

    "mlp_sgd": case("mlp", (24, 20), (28, 28, 1), 8, 5, "sgd", 0.1),
    "mlp_momentum": case("mlp", (24, 20), (10, 8, 1), 8, 5, "sgd", 0.05, momentum=0.9),
    "mlp_adam": case("mlp", (24, 20), (10, 8, 1), 8, 5, "adam", 0.001),
    "mlp_nesterov": case("mlp", (17, 13), (10, 8, 1), 4, 4, "sgd", 0.05, momentum=0.8, nesterov=True),
    "mlp_adam_settings": case("mlp", (17, 13), (10, 8, 1), 4, 4, "adam", 0.01, beta_1=0.8, beta_2=0.99, epsilon=0.001),
    "mlp_adadelta": case("mlp", (17, 13), (10, 8, 1), 4, 4, "adadelta", 1.0),
    "mlp_adadelta_settings": case("mlp", (17, 13), (10, 8, 1), 4, 4, "adadelta", 0.5, rho=0.8, epsilon=0.0001),
    "mlp_adagrad": case("mlp", (17, 13), (10, 8, 1), 4, 4, "adagrad", 0.1),
    "mlp_adagrad_settings": case("mlp", (17, 13), (10, 8, 1), 4, 4, "adagrad", 0.1, epsilon=0.01),
    "mlp_rmsprop": case("mlp", (17, 13), (10, 8, 1), 4, 4, "rmsprop", 0.002),
    "mlp_rmsprop_settings": case("mlp", (17, 13), (10, 8, 1), 4, 4, "rmsprop", 0.005, rho=0.8, momentum=0.5, epsilon=0.001),
    "mlp_decay": case("mlp", (17, 13), (10, 8, 1), 4, 4, "sgd", 0.05, weight_decay=0.01),

    "cnn_adam": case("cnn", (6, 8, 16), (32, 32, 3), 4, 3, "adam", 0.001),
    "cnn_adadelta": case("cnn", (6, 10, 16), (16, 12, 3), 4, 3, "adadelta", 0.1),
    "cnn_sgd": case("cnn", (5, 9, 15), (16, 12, 3), 2, 2, "sgd", 0.02),

    "bag_of_words_sgd": case("bag_of_words", (50, 9), (1, 12, 1), 8, 5, "sgd", 0.5),
    "bag_of_words_momentum": case("bag_of_words", (50, 9), (1, 12, 1), 8, 5, "sgd", 0.2, momentum=0.9),
    "bag_of_words_adam": case("bag_of_words", (37, 17), (1, 7, 1), 4, 4, "adam", 0.01),
    "bag_of_words_adagrad": case("bag_of_words", (37, 17), (1, 7, 1), 4, 4, "adagrad", 0.1),
}


# --- The computation, in a process of its own: TensorFlow reads its environment once --------------------------------------

def build_model(spec):
    """The model in tf_keras, without dropout and without the softmax (the loss applies it)."""
    import tf_keras
    from tf_keras import layers

    def penalty():
        return tf_keras.regularizers.L2(spec["weight_decay"]) if spec["weight_decay"] else None

    def conv2d(x, filters, size, activation=None):
        return layers.Conv2D(filters, size, padding="same", activation=activation, kernel_regularizer=penalty())(x)

    def dense(x, units, activation=None):
        return layers.Dense(units, activation=activation, kernel_regularizer=penalty())(x)

    def cbr(x, filters):
        return layers.ReLU()(layers.BatchNormalization()(conv2d(x, filters, 3)))

    def block(x, filters, scale_input):
        x0 = conv2d(x, filters, 1) if scale_input else x
        return layers.Add()([x0, cbr(cbr(x, filters), filters)])

    tf_keras.backend.clear_session()  # layer names count from the start again
    x = inputs = layers.Input(spec["shape"])
    widths = spec["widths"]
    if spec["model"] == "wrn":
        x = cbr(x, widths[0])
        for group, filters in enumerate(widths[1:]):
            if group > 0:
                x = layers.MaxPooling2D()(x)
            x = block(x, filters, True)
            x = block(x, filters, False)
        x = layers.GlobalAveragePooling2D()(x)
    elif spec["model"] in ("lenet", "cnn"):
        for filters in widths[:2]:
            x = layers.MaxPooling2D()(conv2d(x, filters, 3, "relu"))
        x = dense(layers.Flatten()(x), widths[2], "relu")
    elif spec["model"] == "bag_of_words":
        x = layers.Embedding(*widths)(layers.Flatten()(x))
        x = layers.GlobalAveragePooling1D()(x)
    else:
        x = layers.Flatten()(x)
        for units in widths:
            x = dense(x, units, "relu")
    return tf_keras.Model(inputs, dense(x, CLASSES))


def variable_name(variable):
    return variable.name.removesuffix(":0")


def initial_value(name, keras_value, random):
    """Kernels and embeddings as Keras initialises them; all others random, so that two swapped variables are seen."""
    kind, shape = name.split("/")[-1], keras_value.shape
    if kind in ("kernel", "embeddings"):
        return keras_value
    if kind in ("gamma", "moving_variance"):
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    return random.normal(0, 0.1, shape).astype(np.float32)


def make_optimizer(spec):
    from tf_keras import optimizers
    kinds = {"sgd": optimizers.SGD, "adam": optimizers.Adam, "adadelta": optimizers.Adadelta,
             "adagrad": optimizers.Adagrad, "rmsprop": optimizers.RMSprop}
    return kinds[spec["optimizer"]](learning_rate=spec["learning_rate"], **spec["settings"])


def train(model, optimizer, x, y):
    """The updates. Returns the loss before each, and the gradients of the first, in the order of the trainable variables."""
    import tensorflow as tf
    import tf_keras

    losses, first_gradients = [], []
    for images, labels in zip(x, y):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf_keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(loss)
            total = tf.add_n([loss] + model.losses)  # model.losses: the L2 penalties
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        losses.append(loss.numpy())
        first_gradients = first_gradients or [tf.convert_to_tensor(g).numpy() for g in gradients]  # also of rows
    return np.array(losses, np.float32), first_gradients


def noise_only(model):
    """The biases of convolutions that feed a batch norm have no true gradient: what is computed is rounding error."""
    return {layer.name + "/bias" for layer in model.layers
            if any(type(node.outbound_layer).__name__ == "BatchNormalization" for node in layer.outbound_nodes)}


def compute(spec, seed, nudge=0):
    """All tensors of one case. The nudge, from 1 on, numbers a small random change of the weights and images used."""
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(seed)
    random = np.random.default_rng(seed)
    model = build_model(spec)
    names = [variable_name(v) for v in model.variables]
    images = (spec["updates"], spec["batch"]) + spec["shape"]
    if spec["model"] == "wrn":
        x = random.normal(size=images).astype(np.float32)
    elif spec["model"] == "bag_of_words":
        x = random.integers(0, spec["widths"][0], images).astype(np.float32)
    else:
        x = random.uniform(size=images).astype(np.float32)
    y = random.integers(0, CLASSES, images[:2]).astype(np.int32)
    initial = {name: initial_value(name, v.numpy(), random) for name, v in zip(names, model.variables)}

    noise = np.random.default_rng([seed, nudge])

    def nudged(value):
        if not nudge:
            return value
        return (value * (1 + NUDGE * noise.uniform(-1, 1, value.shape))).astype(np.float32)

    for name, variable in zip(names, model.variables):
        variable.assign(nudged(initial[name]))
    x_used = x if spec["model"] == "bag_of_words" else nudged(x)

    losses, first_gradients = train(model, make_optimizer(spec), x_used, y)
    prediction = tf.nn.softmax(model(x_used[0], training=False))

    tensors = {"x": x, "y": y, "loss": losses, "prediction": prediction.numpy()}
    tensors.update({"initial/" + name: value for name, value in initial.items()})
    gradient_of = dict(zip((variable_name(v) for v in model.trainable_variables), first_gradients))
    for name, variable in zip(names, model.variables):
        if name in noise_only(model):
            continue
        if name in gradient_of:
            tensors["gradient/" + name] = gradient_of[name]
        if spec["kernels"] or not (name.startswith("conv2d") and name.endswith("/kernel")):
            tensors["final/" + name] = variable.numpy()
    return tensors


def compute_all(folder, nudges, work):
    """What the subprocess does: every NAME:SEED of work, as many times as there are nudges."""
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    for name, seed in (item.split(":") for item in work):
        for nudge in map(int, nudges):
            np.savez(os.path.join(folder, f"{name}-{nudge}.npz"), **compute(CASES[name], int(seed), nudge))


def run(folder, onednn, nudges, work):
    """Starts that subprocess, and returns for each case its results, one for each nudge."""
    os.mkdir(folder)
    subprocess.run([sys.executable, __file__, "--compute", folder, ",".join(map(str, nudges))] + work, check=True,
                   env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"})
    names = [item.split(":")[0] for item in work]
    return {name: [dict(np.load(os.path.join(folder, f"{name}-{nudge}.npz"))) for nudge in nudges] for name in names}


# --- Comparing and writing --------------------------------------------------------------------------------------------

def disagreement(ours, expected):
    """The largest error of a tensor, as build/replay measures it, and that tensor's name."""
    groups = {}
    for name in expected:
        group = name.split("/")[0]
        if group in ("loss", "gradient", "final", "prediction"):
            groups.setdefault(group, []).append(name)
    worst = (0.0, "")
    for names in groups.values():
        floor = 0.001 * max(np.abs(expected[name]).max() for name in names)
        for name in names:
            scale = max(np.abs(expected[name]).max(), floor)
            difference = np.abs(ours[name] - expected[name]).max()
            if not np.isfinite(difference):  # max() would pass over what is not a number
                return np.inf, name
            worst = max(worst, (float(difference / scale) if difference else 0.0, name))
    return worst


def metadata(spec):
    fields = {"model": spec["model"], "optimizer": spec["optimizer"], "learning_rate": spec["learning_rate"],
              **spec["settings"]}
    if spec["weight_decay"]:
        fields["weight_decay"] = spec["weight_decay"]
    return {key: str(value).lower() for key, value in fields.items()}


def write_safetensors(path, tensors, fields):
    """The safetensors package orders the metadata at random; here the same tensors give the same bytes."""
    header, blobs, offset = {"__metadata__": fields}, [], 0
    for name in sorted(tensors):
        value = tensors[name]
        blob = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": {"float32": "F32", "int32": "I32"}[str(value.dtype)],
                        "shape": list(value.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main(names):
    pending = names or list(CASES)
    os.makedirs(CASES_DIR, exist_ok=True)
    for seed in SEEDS:
        if not pending:
            return 0
        work = [f"{name}:{seed}" for name in pending]
        with tempfile.TemporaryDirectory() as folder:
            plain = run(os.path.join(folder, "plain"), "0", [0], work)
            onednn = run(os.path.join(folder, "onednn"), "1", [0], work)
            nudged = run(os.path.join(folder, "nudged"), "0", range(1, NUDGES + 1), work)
        for name in list(pending):
            expected = plain[name][0]
            error, tensor = disagreement(onednn[name][0], expected)
            nudge_error, nudge_tensor = max(disagreement(result, expected) for result in nudged[name])
            kept = max(error, nudge_error) <= TOLERANCE / 4
            print(f"{name}, seed {seed}: oneDNN {error:.1e} ({tensor}), nudged {nudge_error:.1e} ({nudge_tensor}): "
                  f"{'kept' if kept else 'rejected'}", flush=True)
            if kept:
                write_safetensors(os.path.join(CASES_DIR, name + ".safetensors"), expected, metadata(CASES[name]))
                pending.remove(name)
    print("no seed gives a stable case:", ", ".join(pending), file=sys.stderr)
    return 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compute"]:
        compute_all(sys.argv[2], sys.argv[3].split(","), sys.argv[4:])
    else:
        sys.exit(main(sys.argv[1:]))
