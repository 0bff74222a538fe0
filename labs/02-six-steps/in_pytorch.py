"""The six steps in PyTorch: trains lab 2's Wide ResNet on Fashion-MNIST, one process for each device.

    torchrun --nproc-per-node 2 in_pytorch.py [--epochs 1] [--batch-size 64] [--width 1] ... [--data-dir FOLDER]

Its flags mean what the kit's do, and the lines that it prints are the kit's. Images are neither shifted nor flipped, as with
the kit's --no-augment. --batch-size is each process's, for validation, too.
"""
import argparse
import gzip
import os
import time
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

# Step 1: join the job, and work on a device of one's own. torchrun sets LOCAL_RANK, and how the processes find each other.
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)

flags = argparse.ArgumentParser()
for name, default in {"epochs": 1, "batch-size": 64, "width": 1, "images": 60000, "base-lr": 0.01, "wd": 0.000005}.items():
    flags.add_argument(f"--{name}", type=type(default), default=default)
folders = ["/usr/share/datasets/fashion-mnist", "data"]  # Debian's, and make data's
flags.add_argument("--data-dir", default=next(filter(os.path.isdir, folders), folders[0]))
args = flags.parse_args()
# Step 2: only rank 0 prints.
verbose = dist.get_rank() == 0


def read(name, offset):
    with gzip.open(f"{args.data_dir}/{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


def load(name, mean, deviation):
    """All images of a set, standardized, and their labels: they fit into memory."""
    pixels = (read(f"{name}-images-idx3", 16).astype(np.float32) - mean) / (deviation + np.float32(1e-6))
    labels = read(f"{name}-labels-idx1", 8).astype(np.int64)
    return torch.from_numpy(pixels.reshape(-1, 1, 28, 28)[:args.images]).to(device), torch.from_numpy(labels[:args.images]).to(device)


def cbr(channels, filters):
    return nn.Sequential(nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters, eps=1e-3, momentum=0.01), nn.ReLU())


class ConvBlock(nn.Module):
    def __init__(self, channels, filters, scale_input):
        super().__init__()
        self.shortcut = nn.Conv2d(channels, filters, 1) if scale_input else nn.Identity()
        self.body = nn.Sequential(cbr(channels, filters), nn.Dropout(0.01), cbr(filters, filters))

    def forward(self, x):
        return self.shortcut(x) + self.body(x)


def create_model(width):
    layers, channels = [cbr(1, 16)], 16
    for filters in (16 * width, 32 * width, 64 * width):
        layers += [ConvBlock(channels, filters, True), ConvBlock(filters, filters, False), nn.MaxPool2d(2)]
        channels = filters
    network = nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return network


def batches(data, sampler, epoch):
    sampler.set_epoch(epoch)  # another permutation
    for indices in torch.tensor(list(sampler)).split(args.batch_size):
        yield data[0][indices], data[1][indices]


def run(data, sampler, epoch, optimizer=None):
    """Trains on this rank's part of the images, or tests without an optimizer: the mean loss and the accuracy of all ranks."""
    sums = torch.zeros(3, dtype=torch.float64, device=device)  # loss, right, images
    for images, labels in batches(data, sampler, epoch):
        logits = (model if optimizer else model.module)(images)
        loss = cross_entropy(logits, labels)
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sums += torch.stack([loss.detach() * len(labels), (logits.argmax(1) == labels).sum(), torch.tensor(len(labels))]).to(sums)
    # Step 6: sums and counts of all ranks.
    dist.all_reduce(sums)
    return (sums[:2] / sums[2]).tolist()


pixels = read("train-images-idx3", 16)[:args.images * 28 * 28]
train, test = (load(name, np.float32(pixels.mean()), np.float32(pixels.std())) for name in ("train", "t10k"))
# Step 5: each rank has its part of the images of an epoch; if they do not divide, some come twice.
train_sampler, test_sampler = DistributedSampler(train[1]), DistributedSampler(test[1])

# Steps 3 and 4: rank 0's weights are sent to all now, and the gradients averaged during each backward pass.
model = DistributedDataParallel(create_model(args.width).to(device))
# As the kit's --wd, on kernels alone. (PyTorch adds weight_decay * w to a gradient, Keras's penalty 2 * wd * w.)
kernels, others = ([p for p in model.parameters() if (p.dim() > 1) == kernel] for kernel in (True, False))
optimizer = torch.optim.SGD([{"params": kernels, "weight_decay": 2 * args.wd}, {"params": others}], lr=args.base_lr)

for epoch in range(args.epochs):
    if verbose:
        print(f"Epoch {epoch + 1}/{args.epochs}")
    begin = time.perf_counter()
    model.train()
    loss, accuracy = run(train, train_sampler, epoch, optimizer)
    model.eval()
    with torch.inference_mode():
        for part in range(3):  # as the kit does: three times the images, among all ranks
            val_loss, val_accuracy = run(test, test_sampler, 3 * epoch + part)
    seconds = time.perf_counter() - begin
    if verbose:
        print(f"Images/sec: {len(train[1]) / seconds:.2f}")
        print(f"{seconds:.1f}s - loss: {loss:.4f} - accuracy: {accuracy:.4f} - val_loss: {val_loss:.4f} - val_accuracy: {val_accuracy:.4f}")

with torch.inference_mode():
    test_loss, test_accuracy = run(test, test_sampler, 0)
if verbose:
    print(f"Test loss: {test_loss:.4f}\nTest accuracy: {test_accuracy:.4f}")
dist.barrier()  # a rank that exits while gloo's threads still have the last sums can be aborted
dist.destroy_process_group()
