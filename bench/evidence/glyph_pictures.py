#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders letters and digits in 16 of Debian's Noto fonts as clean grey pictures, which the model glyphs moves and adds noise to.

usage: glyph_pictures.py FILE    (apt-get install fonts-noto-core python3-pil)

FILE: a line with the numbers of classes, of pictures of a class, and of pixels of a side; then a byte a pixel, class after class.
"""

import pathlib
import sys

SIDE, SIZE = 20, 16  # pixels of a picture; of the font
CLASSES = "ABCDEFGHKLMNPQRSTUVWXYZ23456789"  # no two of them look alike in some font
FAMILIES = ["NotoSans", "NotoSerif", "NotoSansDisplay", "NotoSerifDisplay"]
STYLES = ["Regular", "Bold", "Italic", "BoldItalic"]
FOLDER = pathlib.Path("/usr/share/fonts/truetype/noto")


def rendered() -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    fonts = [ImageFont.truetype(str(FOLDER / f"{family}-{style}.ttf"), SIZE) for family in FAMILIES for style in STYLES]
    pixels = b""
    for letter in CLASSES:
        for font in fonts:
            picture = Image.new("L", (SIDE, SIDE))
            left, top, right, bottom = font.getbbox(letter)
            ImageDraw.Draw(picture).text(((SIDE - left - right) / 2, (SIDE - top - bottom) / 2), letter, font=font, fill=255)
            pixels += picture.tobytes()
    return f"{len(CLASSES)} {len(fonts)} {SIDE}\n".encode() + pixels


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rendered())
