"""AlexNet (Krizhevsky, 2014) for the two examples beside it, and what makes its input of a small grey image."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class AlexNet(nn.Module):
    """Five convolutions and three layers. `width` divides all of their sizes: 1 is the network of the paper."""

    def __init__(self, num_classes=10, width=1):
        super().__init__()
        sizes = [size // width for size in (64, 192, 384, 256, 256, 4096)]
        self.features = nn.Sequential(
            nn.Conv2d(3, sizes[0], kernel_size=11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(sizes[0], sizes[1], kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2),
            nn.Conv2d(sizes[1], sizes[2], kernel_size=3, padding=1), nn.ReLU(),
            nn.Conv2d(sizes[2], sizes[3], kernel_size=3, padding=1), nn.ReLU(),
            nn.Conv2d(sizes[3], sizes[4], kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2))
        self.pool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(sizes[4] * 6 * 6, sizes[5]), nn.ReLU(),
            nn.Dropout(), nn.Linear(sizes[5], sizes[5]), nn.ReLU(),
            nn.Linear(sizes[5], num_classes))

    def forward(self, images):
        return self.classifier(torch.flatten(self.pool(self.features(images)), 1))


class ToColour:
    """A grey image [1, 28, 28] as three channels of `size` by `size`, normalised as ImageNet's are."""

    def __init__(self, size):
        self.size = size
        self.mean = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1)
        self.deviation = torch.tensor([0.229, 0.224, 0.225]).reshape(3, 1, 1)

    def __call__(self, image):
        larger = F.interpolate(image.unsqueeze(0), size=(self.size, self.size), mode="bilinear", antialias=True)[0]
        return (larger.expand(3, -1, -1) - self.mean) / self.deviation
