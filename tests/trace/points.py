"""Classes that several tables of constructs use."""


class Point:
    scale = 2.0

    def __init__(self, a, b=1):
        self.a = a
        self.b = b

    def total(self):
        return self.a + self.b

    @property
    def double(self):
        return self.a * 2

    @double.setter
    def double(self, value):
        self.a = value / 2

    @double.deleter
    def double(self):
        self.a = 0

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def make(cls, a):
        return cls(a, 3)


class Derived(Point):
    def __init__(self, a):
        super().__init__(a, 5)
        self.c = 7

    def total(self):
        return super().total() * self.c

    @classmethod
    def make(cls, a):
        return super().make(a) if cls is Point else cls(a)

    @property
    def double(self):
        return super().double + 1
