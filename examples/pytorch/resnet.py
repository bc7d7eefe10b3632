"""ResNets (He et al., 2015) for the examples beside it: small images, as CIFAR's, or ImageNet's."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, kernel_size=1, stride=stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    """Four groups of blocks; gives logarithms of probabilities. `large` images are made smaller by the first layers."""

    def __init__(self, blocks, num_classes=10, channels=3, width=64, large=False):
        super().__init__()
        if large:
            self.begin = nn.Sequential(nn.Conv2d(channels, width, kernel_size=7, stride=2, padding=3, bias=False),
                                       nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        else:
            self.begin = nn.Sequential(nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(width),
                                       nn.ReLU())
        layers, size = [], width
        for group, count in enumerate(blocks):
            for at in range(count):
                layers.append(BasicBlock(size, width << group, stride=2 if group > 0 and at == 0 else 1))
                size = width << group
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(size, num_classes)

    def forward(self, x):
        out = F.adaptive_avg_pool2d(self.layers(self.begin(x)), 1)
        return F.log_softmax(self.linear(torch.flatten(out, 1)), dim=1)


def resnet18(**options):
    return ResNet([2, 2, 2, 2], **options)


def resnet34(**options):
    return ResNet([3, 4, 6, 3], **options)
