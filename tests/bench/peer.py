"""The peer in `make bench`: trains the benchmark's models with PyTorch or Keras, when it is told to.

    python peer.py FRAMEWORK MODEL WIDTH BATCH THREADS [DEVICE PRECISION]

FRAMEWORK is pytorch, pytorch-channels-last or keras on a CPU; pytorch or pytorch-compile on a GPU, both with channels
last, as PyTorch is quickest there. MODEL is wrn or lenet (WIDTH counts for wrn only), DEVICE cpu (the default) or gpu,
PRECISION fp32 (the default), bf16 (mixed: PyTorch's by autocast, Keras's by its policy) or, on a GPU, tf32. It answers
on standard output, one line each, and writes nothing else there:

    ready             built and warmed up; or
    absent: REASON    the framework cannot be imported, or there is no GPU for it; it exits with status 0
    run N             (input) N training steps, answered by: SECONDS PEAK_RSS_MIB
    quit              (input) exit; so does the end of the input

Training is the kit's: batch norm, dropout 0.01 in wrn, L2 5e-6 on kernels, plain SGD 0.01, cross-entropy, on one
random batch that is in memory already.
"""
import contextlib
import os
import sys
import time

CLASSES = 10
LEARNING_RATE = 0.01
WEIGHT_DECAY = 5e-6
DROPOUT = 0.01
WARM_UP_STEPS = 3
SIZE = 28


class Absent(Exception):
    """What this peer needs is not on this machine."""


def pytorch_gpu(torch, precision):
    """The GPU, with the arithmetic that the precision allows and cuDNN's fastest algorithms."""
    if not torch.cuda.is_available():
        raise Absent("no GPU that this PyTorch can use")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    return torch.device("cuda")


def pytorch_step(model_name, width, batch, threads, device, precision, channels_last, compiled):
    """Returns a function that does one step and returns the loss, still as a tensor."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    on_gpu = device == "gpu"
    place = pytorch_gpu(torch, precision) if on_gpu else torch.device("cpu")

    class Cbr(nn.Sequential):
        def __init__(self, channels, filters):
            super().__init__(nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters, eps=1e-3, momentum=0.01),
                             nn.ReLU(inplace=True))

    class Block(nn.Module):
        def __init__(self, channels, filters, scale_input):
            super().__init__()
            self.shortcut = nn.Conv2d(channels, filters, 1) if scale_input else nn.Identity()
            self.body = nn.Sequential(Cbr(channels, filters), nn.Dropout(DROPOUT), Cbr(filters, filters))

        def forward(self, x):
            return self.shortcut(x) + self.body(x)

    layers, channels = [], 1
    if model_name == "wrn":
        layers.append(Cbr(1, 16))
        channels = 16
        for group, filters in enumerate((16 * width, 32 * width, 64 * width)):
            if group > 0:
                layers.append(nn.MaxPool2d(2))
            layers += [Block(channels, filters, True), Block(filters, filters, False)]
            channels = filters
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
    else:
        for filters in (32, 64):
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
            channels = filters
        layers += [nn.Flatten(), nn.Linear(channels * (SIZE // 4) ** 2, 512), nn.ReLU(inplace=True),
                   nn.Linear(512, CLASSES)]
    model = nn.Sequential(*layers).train().to(place)
    images = torch.randn(batch, 1, SIZE, SIZE).to(place)
    labels = torch.randint(CLASSES, (batch,)).to(place)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)

    kernels = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    # PyTorch adds weight_decay * w to the gradient, Keras's penalty adds 2 * W * w.
    optimizer = torch.optim.SGD([{"params": kernels, "weight_decay": 2 * WEIGHT_DECAY}, {"params": others}],
                                lr=LEARNING_RATE, **({"fused": True} if on_gpu else {}))

    def forward():
        return functional.cross_entropy(model(images), labels)

    loss_of_batch = torch.compile(forward) if compiled else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(place.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            loss = loss_of_batch()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def finish():
        if on_gpu:
            torch.cuda.synchronize()

    return step, finish


def keras_step(model_name, width, batch, threads, precision):
    """The same with TensorFlow. One tf.function a step: train_on_batch and jit_compile=True were slower on a CPU."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    keras = tf.keras
    if keras.__version__.startswith("3"):
        try:
            import tf_keras as keras
        except ImportError:
            pass
    layers = keras.layers
    if precision == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def conv2d(x, filters, size, activation=None):
        return layers.Conv2D(filters, size, padding="same", activation=activation,
                             kernel_regularizer=keras.regularizers.L2(WEIGHT_DECAY))(x)

    def dense(x, units, activation=None):
        return layers.Dense(units, activation=activation, kernel_regularizer=keras.regularizers.L2(WEIGHT_DECAY))(x)

    def cbr(x, filters):
        return layers.ReLU()(layers.BatchNormalization()(conv2d(x, filters, 3)))

    def block(x, filters, scale_input):
        x0 = conv2d(x, filters, 1) if scale_input else x
        return layers.Add()([x0, cbr(layers.Dropout(DROPOUT)(cbr(x, filters)), filters)])

    x = inputs = layers.Input((SIZE, SIZE, 1))
    if model_name == "wrn":
        x = cbr(x, 16)
        for group, filters in enumerate((16 * width, 32 * width, 64 * width)):
            if group > 0:
                x = layers.MaxPooling2D()(x)
            x = block(block(x, filters, True), filters, False)
        x = layers.GlobalAveragePooling2D()(x)
    else:
        for filters in (32, 64):
            x = layers.MaxPooling2D()(conv2d(x, filters, 3, "relu"))
        x = dense(layers.Flatten()(x), 512, "relu")
    logits = layers.Activation("linear", dtype="float32")(dense(x, CLASSES))  # the loss is float32's in any case
    model = keras.Model(inputs, logits)
    try:
        optimizer = keras.optimizers.legacy.SGD(LEARNING_RATE)  # Keras 2: the new one keeps momentum even when it is 0
    except (AttributeError, ImportError):
        optimizer = keras.optimizers.SGD(LEARNING_RATE)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images = tf.random.normal((batch, SIZE, SIZE, 1))
    labels = tf.random.uniform((batch,), maxval=CLASSES, dtype=tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True))
            total = loss + tf.add_n(model.losses)
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step, lambda: None


def peak_rss_mib():
    """Of this program alone: getrusage's figure would include the benchmark that started it."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def run(step, finish, count):
    for _ in range(count):
        loss = step()
    loss = float(loss)  # waits until it is computed,
    finish()  # and for what comes after it
    return loss


def step_of(framework, sizes, device, precision):
    if framework == "keras":
        return keras_step(*sizes, precision)
    channels_last = device == "gpu" or framework == "pytorch-channels-last"
    return pytorch_step(*sizes, device, precision, channels_last, compiled=framework == "pytorch-compile")


def main(framework, model_name, width, batch, threads, device="cpu", precision="fp32"):
    # Whatever the frameworks print goes to standard error; only `answers` is the real standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sizes = (model_name, int(width), int(batch), int(threads))
    try:
        step, finish = step_of(framework, sizes, device, precision)
    except (Absent, ImportError, OSError) as error:
        print("absent:", str(error).splitlines()[0], file=answers)
        return
    run(step, finish, WARM_UP_STEPS)
    print("ready", file=answers)
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["quit"]:
            return
        if len(words) != 2 or words[0] != "run" or int(words[1]) < 1:
            sys.exit(f"peer.py: expected 'run N' or 'quit', not {line.strip()!r}")
        begin = time.perf_counter()
        run(step, finish, int(words[1]))
        print(f"{time.perf_counter() - begin:.6f} {peak_rss_mib():.0f}", file=answers)


FRAMEWORKS = {"cpu": ("pytorch", "pytorch-channels-last", "keras"), "gpu": ("pytorch", "pytorch-compile")}
PRECISIONS = {"cpu": ("fp32", "bf16"), "gpu": ("fp32", "tf32", "bf16")}

if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) == 5:
        words += ["cpu", "fp32"]
    if len(words) != 7 or words[1] not in ("wrn", "lenet") or words[0] not in FRAMEWORKS.get(words[5], ()) \
            or words[6] not in PRECISIONS[words[5]]:
        sys.exit(__doc__)
    main(*words)
