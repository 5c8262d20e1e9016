# SPDX-License-Identifier: BSL-1.0
"""FFCV's processing chain with OpenCV: decodes the whole image and resizes its crop by area
interpolation. peer.py describes the command line."""

import functools

import cv2
import numpy as np

import peer
import image_peer


def make_sample(side):
    cv2.setNumThreads(1)

    def sample(path, out):
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)
        left, top, width, height = image_peer.crop_of(image.shape[1], image.shape[0])
        crop = image[top : top + height, left : left + width]
        cv2.resize(crop, (side, side), dst=out, interpolation=cv2.INTER_AREA)

    return sample


def resize(folder):
    cv2.setNumThreads(1)

    def shrink(image):
        return cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA)

    return image_peer.resize(shrink, lambda array: array, folder)


ROWS = {
    f"OpenCV_area/threads:{threads}": functools.partial(image_peer.load, make_sample, threads)
    for threads in (1, 2)
}
ROWS["resize_OpenCV_area"] = resize

if __name__ == "__main__":
    peer.main(ROWS, {"opencv": cv2.__version__})
