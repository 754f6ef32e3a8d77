"""The Triton kernels of a training step of residual networks. ``resnet.py`` starts them.

Every kernel processes the G models of a group at once: activations are ``[G * B, H, W, C]``, weights
``[G * outputs, taps * inputs]``, vectors ``[G, C]``. A convolution is an implicit matrix product on tiles that the
tensor memory accelerator (TMA) loads, which also supplies the zeros beyond the border; with stride 2 the rows and
columns of one parity are dimensions of their own. No kernel adds atomically, so the same tiles give the same bits.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

# ---------------------------------------------------------------- convolutions


@triton.jit
def convolve(
    x_tiles, w_tiles, y_tiles, short_tiles, short_w_tiles, sums,
    IN: tl.constexpr, OUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, IMAGES: tl.constexpr, NB: tl.constexpr,
    BH: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, KS: tl.constexpr, STRIDE: tl.constexpr,
    BACKWARD: tl.constexpr, STATS: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """A convolution, or with BACKWARD the gradient of its input.

    H and W are those of the tiles: of y forward, of y's gradient backward. A tile is NB images x BH rows x W pixels of
    BC channels. STATS also writes each tile's sums of y and of its square; SHORT also adds the gradient that arrives
    through the 1x1 convolution of the shortcut.
    """
    BP: tl.constexpr = NB * BH * W
    TILES_H: tl.constexpr = H // BH
    TILES: tl.constexpr = (IMAGES // NB) * TILES_H
    KC: tl.constexpr = IN // BK
    pid = tl.program_id(0)
    c_tile = pid % (OUT // BC)
    p_tile = pid // (OUT // BC)
    g = p_tile // TILES
    image = g * IMAGES + (p_tile % TILES) // TILES_H * NB
    row = (p_tile % TILES) % TILES_H * BH
    acc = tl.zeros((BC, BP), tl.float32)
    if BACKWARD and STRIDE == 2:  # the input pixel (2i + pr, 2j + ps) only took part in the taps of its parity
        pr = tl.program_id(1) // 2
        ps = tl.program_id(1) % 2
        for k in tl.range(0, (1 + pr) * (1 + ps) * KC):
            c = k % KC * BK
            t = k // KC
            ir = t // (1 + ps)
            js = t % (1 + ps)
            r = 1 + pr * (2 * ir - 1)  # 1, or 0 and 2
            s = 1 + ps * (2 * js - 1)
            x = x_tiles.load([image, row + 1 - (r + 1) // 2, 1 - (s + 1) // 2, c]).reshape(BP, BK)
            w = w_tiles.load([g * IN + c, (3 * r + s) * OUT + c_tile * BC])
            acc = tl.dot(w.T, x.T, acc)
        if SHORT:  # noqa: SIM102 (known when compiling, unlike the parity)
            if pr + ps == 0:
                for k in tl.range(0, KC):
                    x = short_tiles.load([image, row, 0, k * BK]).reshape(BP, BK)
                    w = short_w_tiles.load([g * IN + k * BK, c_tile * BC])
                    acc = tl.dot(w.T, x.T, acc)
        y_tiles.store([image, row, pr, 0, ps * OUT + c_tile * BC], acc.to(y_tiles.dtype).T.reshape(NB, BH, 1, W, BC))
    else:
        for k in tl.range(0, KS * KS * KC):
            tap = k // KC
            c = k % KC * BK
            r = tap // 3 if KS == 3 else 1
            s = tap % 3 if KS == 3 else 1
            if STRIDE == 2:
                x = x_tiles.load([image, row + (r + 1) // 2 - 1, (r + 1) % 2, (s + 1) // 2 - 1, (s + 1) % 2 * IN + c])
            else:
                x = x_tiles.load([image, row + r - 1, s - 1, c])
            if BACKWARD:
                w = w_tiles.load([g * IN + c, (8 - tap) * OUT + c_tile * BC])
                acc = tl.dot(w.T, x.reshape(BP, BK).T, acc)
            else:
                w = w_tiles.load([g * OUT + c_tile * BC, tap * IN + c])
                acc = tl.dot(w, x.reshape(BP, BK).T, acc)
        y = acc.to(y_tiles.dtype)
        if STATS:
            v = y.to(tl.float32)
            at = sums + p_tile * (2 * OUT) + c_tile * BC + tl.arange(0, BC)
            tl.store(at, tl.sum(v, 1))
            tl.store(at + OUT, tl.sum(v * v, 1))
        y_tiles.store([p_tile * BP, c_tile * BC], y.T)


@triton.jit
def weight_gradient(
    x_tiles, dy_tiles, dw,
    IN: tl.constexpr, OUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, IMAGES: tl.constexpr, NB: tl.constexpr,
    BH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KS: tl.constexpr, STRIDE: tl.constexpr, SPLIT: tl.constexpr,
    THREE: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's weights for BM outputs x BN inputs and one tap, or with THREE one row of taps.

    The pixels are divided among SPLIT programs, whose results :func:`add_splits` adds in order.
    """
    BK: tl.constexpr = NB * BH * W
    TILES_H: tl.constexpr = H // BH
    TILES: tl.constexpr = (IMAGES // NB) * TILES_H
    TAPS: tl.constexpr = 3 if THREE else KS * KS
    pid = tl.program_id(0)
    tap = pid % TAPS
    pid = pid // TAPS
    n = pid % (IN // BN) * BN
    pid = pid // (IN // BN)
    m = pid % (OUT // BM) * BM
    part = pid // (OUT // BM)
    g = part // SPLIT
    r = tap if THREE else (tap // 3 if KS == 3 else 1)
    s = tap % 3 if KS == 3 else 1
    acc = tl.zeros((BM, BN), tl.float32)
    acc1 = tl.zeros((BM, BN), tl.float32)
    acc2 = tl.zeros((BM, BN), tl.float32)
    for t in tl.range(part % SPLIT * (TILES // SPLIT), (part % SPLIT + 1) * (TILES // SPLIT)):
        image = g * IMAGES + t // TILES_H * NB
        row = t % TILES_H * BH
        dy = dy_tiles.load([(g * TILES + t) * BK, m])
        if THREE:
            acc = tl.dot(dy.T, x_tiles.load([image, row + r - 1, -1, n]).reshape(BK, BN), acc)
            acc1 = tl.dot(dy.T, x_tiles.load([image, row + r - 1, 0, n]).reshape(BK, BN), acc1)
            acc2 = tl.dot(dy.T, x_tiles.load([image, row + r - 1, 1, n]).reshape(BK, BN), acc2)
        elif STRIDE == 2:
            x = x_tiles.load([image, row + (r + 1) // 2 - 1, (r + 1) % 2, (s + 1) // 2 - 1, (s + 1) % 2 * IN + n])
            acc = tl.dot(dy.T, x.reshape(BK, BN), acc)
        else:
            acc = tl.dot(dy.T, x_tiles.load([image, row + r - 1, s - 1, n]).reshape(BK, BN), acc)
    first = 3 * tap if THREE else tap
    outputs = part * OUT + m + tl.arange(0, BM)[:, None]
    at = dw + outputs * (KS * KS * IN) + first * IN + n + tl.arange(0, BN)[None, :]
    tl.store(at, acc.to(dw.dtype.element_ty))
    if THREE:
        tl.store(at + IN, acc1.to(dw.dtype.element_ty))
        tl.store(at + 2 * IN, acc2.to(dw.dtype.element_ty))


@triton.jit
def add_splits(parts, out, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(SPLIT):
        acc += tl.load(parts + (tl.program_id(1) * SPLIT + s) * n + i)
    tl.store(out + tl.program_id(1) * n + i, acc.to(out.dtype.element_ty))


@triton.jit
def columns(images, out, of_image, of_channel, of_row, of_pixel, H: tl.constexpr):
    """One row of an image ``[3, H, H]`` as columns for a 3x3 convolution, ``[H, 32]``, of which 27 are used.

    ``of_image`` to ``of_pixel`` are the strides of ``images``.
    """
    i = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    w = tl.arange(0, H)[:, None]
    k = tl.arange(0, 32)[None, :]
    r, q, channel = h + k // 9 - 1, w + k // 3 % 3 - 1, k % 3
    inside = (k < 27) & (r >= 0) & (r < H) & (q >= 0) & (q < H)
    v = tl.load(images + i * of_image + channel * of_channel + r * of_row + q * of_pixel, mask=inside, other=0.0)
    tl.store(out + tl.program_id(0).to(tl.int64) * (H * 32) + w * 32 + k, v.to(out.dtype.element_ty))


# ---------------------------------------------------------------- batch normalisation, ReLU, shortcut


@triton.jit
def _sum_tiles(parts, TILES, row, c, STEP: tl.constexpr, C: tl.constexpr, RB: tl.constexpr):
    """Sum one of the STEP / C rows of sums over all tiles of a model."""
    acc = tl.zeros((RB, 16), tl.float32)
    for t in tl.range(0, TILES, RB):
        rows = t + tl.arange(0, RB)
        acc += tl.load(parts + rows[:, None] * STEP + row * C + c[None, :], mask=(rows < TILES)[:, None], other=0.0)
    return tl.sum(acc, 0)


@triton.jit
def normalise_ready(sums, TILES, count, gamma, beta, running, coef, momentum, eps, C: tl.constexpr, RB: tl.constexpr):
    """Write ``coef`` ``[G, 4, C]``: scale, shift, mean, 1 / standard deviation; and move the running statistics."""
    g = tl.program_id(0)
    c = tl.program_id(1) * 16 + tl.arange(0, 16)
    sums += g * TILES * (2 * C)
    mean = _sum_tiles(sums, TILES, 0, c, 2 * C, C, RB) / count
    var = tl.maximum(_sum_tiles(sums, TILES, 1, c, 2 * C, C, RB) / count - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    scale = tl.load(gamma + g * C + c) * rstd
    coef += g * 4 * C + c
    tl.store(coef, scale)
    tl.store(coef + C, tl.load(beta + g * C + c) - mean * scale)
    tl.store(coef + 2 * C, mean)
    tl.store(coef + 3 * C, rstd)
    running += g * 2 * C + c
    tl.store(running, tl.load(running) * (1 - momentum) + mean * momentum)
    unbiased = var * (count / (count - 1))
    tl.store(running + C, tl.load(running + C) * (1 - momentum) + unbiased * momentum)


@triton.jit
def normalise(y, coef, res, res_coef, z, TILES, C: tl.constexpr, R: tl.constexpr, RES: tl.constexpr):
    """``z = relu(bn(y))``, with RES 1 ``relu(bn(y) + res)``, with RES 2 ``relu(bn(y) + bn(res))``."""
    pid = tl.program_id(0)
    c = tl.arange(0, C)
    at = pid.to(tl.int64) * (R * C) + tl.arange(0, R)[:, None] * C + c[None, :]
    k = coef + pid // TILES * 4 * C + c
    v = tl.load(y + at).to(tl.float32) * tl.load(k)[None, :] + tl.load(k + C)[None, :]
    if RES == 1:
        v += tl.load(res + at).to(tl.float32)
    if RES == 2:
        k = res_coef + pid // TILES * 4 * C + c
        v += tl.load(res + at).to(tl.float32) * tl.load(k)[None, :] + tl.load(k + C)[None, :]
    tl.store(z + at, tl.maximum(v, 0.0).to(z.dtype.element_ty))


@triton.jit
def normalise_back_sums(
    da, db, z, y, coef, short_y, short_coef, masked, sums, TILES, PROGRAMS,
    C: tl.constexpr, R: tl.constexpr, OUTER: tl.constexpr, TWO: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """Sums over pixels of the gradient after ReLU's mask, and of its product with the normalised y.

    OUTER: at the end of a block the mask is that of z, and the masked gradient is kept for the shortcut. TWO: the
    gradient is ``da + db``. SHORT: also sums for the BatchNorm of the shortcut.
    """
    g = tl.program_id(0) // PROGRAMS
    c = tl.arange(0, C)
    k = coef + g * 4 * C + c
    a, b = tl.load(k)[None, :], tl.load(k + C)[None, :]
    mean, rstd = tl.load(k + 2 * C)[None, :], tl.load(k + 3 * C)[None, :]
    s1 = tl.zeros((R, C), tl.float32)
    s2 = tl.zeros((R, C), tl.float32)
    s3 = tl.zeros((R, C), tl.float32)
    for t in tl.range(tl.program_id(0) % PROGRAMS, TILES, PROGRAMS):
        at = (g * TILES + t).to(tl.int64) * (R * C) + tl.arange(0, R)[:, None] * C + c[None, :]
        v = tl.load(y + at).to(tl.float32)
        d = tl.load(da + at).to(tl.float32)
        if TWO:
            d += tl.load(db + at).to(tl.float32)
        if OUTER:
            d = tl.where(tl.load(z + at).to(tl.float32) > 0, d, 0.0).to(masked.dtype.element_ty)
            tl.store(masked + at, d)
            d = d.to(tl.float32)
        else:
            d = tl.where(v * a + b > 0, d, 0.0)
        s1 += d
        s2 += d * ((v - mean) * rstd)
        if SHORT:
            k = short_coef + g * 4 * C + c
            u = tl.load(short_y + at).to(tl.float32)
            s3 += d * ((u - tl.load(k + 2 * C)[None, :]) * tl.load(k + 3 * C)[None, :])
    sums += tl.program_id(0) * (3 * C) + c
    tl.store(sums, tl.sum(s1, 0))
    tl.store(sums + C, tl.sum(s2, 0))
    if SHORT:
        tl.store(sums + 2 * C, tl.sum(s3, 0))


@triton.jit
def normalise_back_ready(
    sums, TILES, count, coef, dgamma, dbeta, back, WHICH: tl.constexpr, C: tl.constexpr, RB: tl.constexpr
):
    """Write ``back`` ``[G, 3, C]``, the f, k and h of ``dy = f d - k - h y``, and the gradients of gamma and beta."""
    g = tl.program_id(0)
    c = tl.program_id(1) * 16 + tl.arange(0, 16)
    sums += g * TILES * (3 * C)
    s1 = _sum_tiles(sums, TILES, 0, c, 3 * C, C, RB)
    s2 = _sum_tiles(sums, TILES, WHICH, c, 3 * C, C, RB)
    tl.store(dbeta + g * C + c, s1)
    tl.store(dgamma + g * C + c, s2)
    k = coef + g * 4 * C + c
    scale, mean, rstd = tl.load(k), tl.load(k + 2 * C), tl.load(k + 3 * C)
    h = scale * rstd * s2 / count
    back += g * 3 * C + c
    tl.store(back, scale)
    tl.store(back + C, scale * s1 / count - mean * h)
    tl.store(back + 2 * C, h)


@triton.jit
def normalise_back(
    da, db, y, coef, back, dy, short_y, short_back, short_dy, TILES,
    C: tl.constexpr, R: tl.constexpr, OUTER: tl.constexpr, TWO: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """The gradient of y from that of ``z = relu(bn(y))``; with SHORT also that of the shortcut's convolution.

    OUTER: ``da`` is the masked gradient of :func:`normalise_back_sums`. TWO: the gradient is ``da + db``.
    """
    pid = tl.program_id(0)
    c = tl.arange(0, C)
    at = pid.to(tl.int64) * (R * C) + tl.arange(0, R)[:, None] * C + c[None, :]
    g = pid // TILES
    v = tl.load(y + at).to(tl.float32)
    e = tl.load(da + at).to(tl.float32)
    if TWO:
        e += tl.load(db + at).to(tl.float32)
    if not OUTER:
        k = coef + g * 4 * C + c
        e = tl.where(v * tl.load(k)[None, :] + tl.load(k + C)[None, :] > 0, e, 0.0)
    k = back + g * 3 * C + c
    out = tl.load(k)[None, :] * e - tl.load(k + C)[None, :] - tl.load(k + 2 * C)[None, :] * v
    tl.store(dy + at, out.to(dy.dtype.element_ty))
    if SHORT:
        k = short_back + g * 3 * C + c
        u = tl.load(short_y + at).to(tl.float32)
        out = tl.load(k)[None, :] * e - tl.load(k + C)[None, :] - tl.load(k + 2 * C)[None, :] * u
        tl.store(short_dy + at, out.to(short_dy.dtype.element_ty))


# ---------------------------------------------------------------- optimiser


@triton.jit
def update_weights(
    value, velocity, gradient, copy, average, average_step, rate, decay, n, momentum, average_decay,
    NESTEROV: tl.constexpr, COPIES: tl.constexpr, AVERAGES: tl.constexpr, ROW: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD as in torch on float32 weights; COPIES also writes them in bf16, AVERAGES also moves their average.

    Gradient and copy have rows of PADDED numbers of which the first ROW are used.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    j = i if ROW == PADDED else i // ROW * PADDED + i % ROW
    v = tl.load(value + i, mask=ok)
    d = tl.load(gradient + j, mask=ok).to(tl.float32) + decay * v
    m = momentum * tl.load(velocity + i, mask=ok) + d
    tl.store(velocity + i, m, mask=ok)
    v -= tl.load(rate) * (d + momentum * m if NESTEROV else m)
    tl.store(value + i, v, mask=ok)
    if COPIES:
        tl.store(copy + j, v.to(copy.dtype.element_ty), mask=ok)
    if AVERAGES:
        step = tl.load(average_step)
        share = 1.0 - tl.minimum((1.0 + step) / (10.0 + step), average_decay)
        a = tl.load(average + i, mask=ok)
        tl.store(average + i, a + share * (v - a), mask=ok)
