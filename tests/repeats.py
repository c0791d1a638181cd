"""The phases of an image in the order in which they run, those of repeats again and again."""

from __future__ import annotations

from dnnl.runtime.image import Image


def in_order(image: Image) -> list[int]:
    """The numbers of the phases."""
    order, begins = list[int](), {repeat.first: repeat for repeat in image.repeats}
    number = 0
    while number < len(image.phases):
        repeat = begins.get(number)
        if repeat is None:
            order.append(number)
            number += 1
        else:
            order += [*range(repeat.first, repeat.end)] * repeat.count
            number = repeat.end
    return order
