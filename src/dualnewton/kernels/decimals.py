"""Parsing of decimal numbers to the nearest double, with integer arithmetic only and the same bits as Python's ``float``.

A number is w · 10^q with an integer w < 2⁶⁴ (its first 19 digits). Eisel and Lemire: with 5^q ≈ t · 2^e and t kept to 128 bits,
the first 64 bits of w · t determine the rounding to 53 bits except in rare cases, which are detected. These cases, subnormal
numbers and overflows are left to ``float``.

D. Lemire, *Number parsing at a gigabyte per second*, Software: Practice and Experience 51 (2021).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LEAST, MOST = -342, 308
"""Smallest and largest exponent q: outside, w · 10^q rounds to zero or overflows for every w."""

DIGITS = 19
"""Number of decimal digits that always fit into a 64-bit word."""

jit = numba.njit(cache=True, nogil=True)
"""Compiler options for text: unlike the numerical kernels, without fast-math."""


def _powers() -> tuple[np.ndarray, np.ndarray]:
    """Return 5^q for each q, scaled to [2¹²⁷, 2¹²⁸), as upper and lower words: rounded down, but up for −27 ≤ q < 0.

    Rounding down keeps products from being too large. For −27 ≤ q < 0 the word w may be divisible by 5^−q, and rounding up
    keeps such an exact quotient from being too small.
    """
    upper, lower = np.empty((2, MOST - LEAST + 1), dtype=np.uint64)
    for k, q in enumerate(range(LEAST, MOST + 1)):
        power = 5 ** abs(q)
        below = (1 << (power.bit_length() + 127)) // power + (q >= -27)
        scaled = power << 128 >> power.bit_length() if q >= 0 else below
        upper[k], lower[k] = scaled >> 64, scaled & 0xFFFFFFFFFFFFFFFF
    return upper, lower


UPPER, LOWER = _powers()
"""The two words of 5^q for q = LEAST, …, MOST."""


class Number(NamedTuple):
    """A parsed number: the bits of the double, the index after its last character, and the outcome."""

    bits: np.uint64
    end: int
    outcome: int


EXACT, HARD, NONE = 0, 1, 2
"""Outcomes: the bits are exact; ``float`` must parse the text instead; the text is not a number."""


@intrinsic
def _upper_half(typingctx: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of the 128-bit product of two words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _leading_zeros(typingctx: Any, word: Any) -> Any:
    """The number of leading zero bits of a nonzero word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


@jit
def nearest(w, q):
    """Return the bits of the double nearest to w · 10^q for w > 0, or 0 if this method cannot determine it."""
    zeros = _leading_zeros(w)
    w = np.uint64(w << zeros)
    k = q - LEAST
    high, low = _upper_half(w, UPPER[k]), np.uint64(w * UPPER[k])
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        # The deciding bits are all ones: the product with the lower word of the power may carry into them.
        more = _upper_half(w, LOWER[k])
        low = np.uint64(low + more)
        if low < more:
            high = np.uint64(high + np.uint64(1))
        if low == np.uint64(0xFFFFFFFFFFFFFFFF) and (q < -27 or q > 55):
            return np.uint64(0)
    top = high >> np.uint64(63)
    drop = np.uint64(top + np.uint64(9))
    mantissa = high >> drop  # 54 bits, of which the last one determines the rounding
    exponent = ((217706 * q) >> 16) + 1086 + np.int64(top) - np.int64(zeros)  # ⌊q·log₂10⌋ and the bias 1023
    if exponent <= 0:
        return np.uint64(0)
    halfway = low <= np.uint64(1) and q >= -4 and q <= 23 and (mantissa & np.uint64(3)) == np.uint64(1)
    if halfway and np.uint64(mantissa << drop) == high:
        mantissa = mantissa & np.uint64(0xFFFFFFFFFFFFFFFE)  # a tie is rounded to even
    mantissa = np.uint64(mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa == np.uint64(1 << 53):
        mantissa, exponent = np.uint64(1 << 52), exponent + 1
    if exponent >= 0x7FF:
        return np.uint64(0)
    return np.uint64((mantissa & np.uint64((1 << 52) - 1)) | (np.uint64(exponent) << np.uint64(52)))


@jit
def number(text, p):
    """Parse the number that begins at text[p]; the text must end with a character that cannot belong to a number:
    sign? (digits (. digits?)? | . digits) ([eE] sign? digits)?
    """
    sign = np.uint64(0)
    if text[p] == 45:
        sign = np.uint64(1 << 63)
        p += 1
    elif text[p] == 43:
        p += 1
    w, kept, q, cut, first = np.uint64(0), 0, 0, False, p
    digit = np.uint8(text[p] - 48)
    while digit <= 9:
        if kept < DIGITS:
            w = np.uint64(w * np.uint64(10) + np.uint64(digit))
            kept += w != 0
        else:
            q += 1
            cut |= digit != 0
        p += 1
        digit = np.uint8(text[p] - 48)
    seen = p - first
    if text[p] == 46:
        p += 1
        first = p
        digit = np.uint8(text[p] - 48)
        while digit <= 9:
            if kept < DIGITS:
                w = np.uint64(w * np.uint64(10) + np.uint64(digit))
                kept += w != 0
                q -= 1
            else:
                cut |= digit != 0
            p += 1
            digit = np.uint8(text[p] - 48)
        seen += p - first
    if seen == 0:
        return Number(sign, p, NONE)
    if text[p] | 32 == 101:
        p += 1
        below = text[p] == 45
        if below or text[p] == 43:
            p += 1
        first, power = p, 0
        digit = np.uint8(text[p] - 48)
        while digit <= 9:
            power = min(power * 10 + digit, 1_000_000_000)
            p += 1
            digit = np.uint8(text[p] - 48)
        if p == first:
            return Number(sign, p, NONE)
        q += -power if below else power
    if w == 0:
        return Number(sign, p, EXACT)
    if q < LEAST or q > MOST:
        return Number(sign, p, HARD)
    bits = nearest(w, q)
    if bits == 0 or (cut and bits != nearest(np.uint64(w + np.uint64(1)), q)):
        return Number(sign, p, HARD)  # digits after the nineteenth matter only if w + 1 rounds to another double
    return Number(sign | bits, p, EXACT)
