"""Convolution networks as their papers describe them, of few channels and few layers."""
import torch
from torch import nn


def convolution(inputs, outputs, size=3, **more):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **more), nn.BatchNorm2d(outputs),
                         nn.ReLU(inplace=True))


class VGG(nn.Module):
    """Simonyan and Zisserman, 2014: convolutions of 3×3 and pools, then three linear layers with dropout."""

    def __init__(self, stages=((8, 1), (16, 2)), side=16, classes=10):
        super().__init__()
        layers, inputs = [], 3
        for width, count in stages:
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(side // 8)
        self.classifier = nn.Sequential(nn.Linear(inputs * (side // 8) ** 2, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 32),
                                        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, classes))

    def forward(self, image):
        return self.classifier(torch.flatten(self.pool(self.features(image)), 1))


class DenseNet(nn.Module):
    """Huang et al., 2016: each layer is given the channels of all layers before it; a transition halves the channels and the sides."""

    def __init__(self, blocks=(3, 2), growth=4, classes=10):
        super().__init__()
        width = 2 * growth
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for number, count in enumerate(blocks):
            self.blocks.append(nn.ModuleList(self.layer(width + i * growth, growth) for i in range(count)))
            width += count * growth
            if number < len(blocks) - 1:
                self.transitions.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                                      nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)))
                width //= 2
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, classes)

    @staticmethod
    def layer(inputs, growth):
        return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, 4 * growth, 1, bias=False),
                             nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True),
                             nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False), nn.Dropout(0.1))

    def forward(self, image):
        x = self.stem(image)
        for number, block in enumerate(self.blocks):
            features = [x]
            for layer in block:
                features.append(layer(torch.cat(features, 1)))
            x = torch.cat(features, 1)
            if number < len(self.transitions):
                x = self.transitions[number](x)
        return self.head(torch.relu(self.norm(x)).mean((2, 3)))


class ShuffleUnit(nn.Module):
    """One unit of ShuffleNetV2: half of the channels pass by, the other half is convolved, and the channels are shuffled."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.stride, half = stride, outputs // 2
        inner = inputs if stride > 1 else half
        self.passed = nn.Sequential(self.by_channel(inputs, stride), convolution(inputs, half, 1)) if stride > 1 else nn.Identity()
        self.convolved = nn.Sequential(convolution(inner, half, 1), self.by_channel(half, stride), convolution(half, half, 1))

    @staticmethod
    def by_channel(width, stride):
        return nn.Sequential(nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        first, second = (x, x) if self.stride > 1 else x.chunk(2, dim=1)
        x = torch.cat((self.passed(first), self.convolved(second)), 1)
        batch, channels, height, width = x.shape
        return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)


class ShuffleNet(nn.Module):
    """Ma et al., 2018: the second version."""

    def __init__(self, stages=((16, 2), (32, 2)), classes=10):
        super().__init__()
        layers, inputs = [convolution(3, 8, stride=2), nn.MaxPool2d(3, 2, 1)], 8
        for width, count in stages:
            layers += [ShuffleUnit(inputs if i == 0 else width, width, 2 if i == 0 else 1) for i in range(count)]
            inputs = width
        self.features, self.head = nn.Sequential(*layers, convolution(inputs, 32, 1)), nn.Linear(32, classes)

    def forward(self, image):
        return self.head(self.features(image).mean([2, 3]))


class UNet(nn.Module):
    """Ronneberger et al., 2015: levels of half the sides each, joined on the way back with what was there on the way down."""

    def __init__(self, widths=(8, 16, 32), classes=2):
        super().__init__()
        self.down = nn.ModuleList(self.level(inputs, outputs) for inputs, outputs in zip((3, *widths), widths))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths[:-1]))
        self.up = nn.ModuleList(self.level(2 * width, width) for width in reversed(widths[:-1]))
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def level(inputs, outputs):
        return nn.Sequential(convolution(inputs, outputs), convolution(outputs, outputs))

    def forward(self, image):
        kept, x = [], image
        for level in self.down:
            x = level(x if not kept else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for widen, level, beside in zip(self.widen, self.up, reversed(kept[:-1])):
            x = level(torch.cat((beside, widen(x)), 1))
        return self.head(x)
