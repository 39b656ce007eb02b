# SPDX-License-Identifier: Apache-2.0
"""Operators in words, and single vectors as bytes."""

import multiprocessing
import threading

import numpy as np
import pytest

import globalq


def values(length, dtype="float32"):
    return ((np.arange(length) * 2654435761 % 2001 - 1000) / 512).astype(dtype)


def test_operators_are_composed_of_words():
    assert globalq.operator("cgx:4") == globalq.operator(norm="local:inf", bucket=128, wire="packed:4", schedule="sra")
    assert globalq.operator("cgx:4", rotate=1024).endswith("rotate=1024 schedule=sra")
    composed = globalq.operator(norm="l:3,inf", bucket=256, levels=[0, 0.25, 1], wire="packed:3", code="huffman")
    assert composed == "norm=l:3,inf bucket=256 levels=table:0,0.25,1 rounding=stochastic wire=huffman schedule=sra"
    assert "feedback=0.95" in globalq.operator("cgx:2", feedback=0.95) and "feedback=1" in globalq.operator("cgx:2", feedback=True)
    assert globalq.operator("cgx:2", feedback=False) == globalq.operator("cgx:2")
    assert globalq.operator("cgx:4", centered=True) != globalq.operator("cgx:4", centered=False) == globalq.operator("cgx:4")
    assert globalq.operator() == globalq.operator("norm=linf")
    for op in globalq.operators():
        if op.schedule and op.name not in ("qsdp-grid", "bounded"):
            text = globalq.operator(op.name)
            assert globalq.operator(text) == text
            assert globalq.plan(text, 5000, 4) == pytest.approx(globalq.plan(op.name, 5000, 4), nan_ok=True)
    exact = globalq.run_threads(2, lambda w: globalq.Mean(w, globalq.operator("cgx:8", rotate=128), seed=1)(values(1000), 0))
    named = globalq.run_threads(2, lambda w: globalq.Mean(w, "cgx:8 rotate=128", seed=1)(values(1000), 0))
    assert (exact[0] == named[0]).all()


@pytest.mark.parametrize("arguments, says", [
    ((("cgx:4",), {"rotation": 8}), "rotation"),
    (((), {"bucket": None}), "bucket is None; give a str, a number or a bool"),
    (((), {"levels": ["a"]}), "levels is \\['a'\\]; give"),
    ((("cgx:4",), {"bucket": 2.5}), "sets bucket to \"2.5\""),
    ((("",), {}), "the name of an operator is ''; give a str"),
    (((4,), {}), "the name of an operator is 4; give a str"),
    ((("top-k:0.01",), {}), "top-k"),
])
def test_words_that_mean_nothing_are_refused(arguments, says):
    with pytest.raises(globalq.ConfigurationError, match=says):
        globalq.operator(*arguments[0], **arguments[1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("length", [0, 1, 255, 4099])
def test_bytes_are_decoded_without_knowing_anything(dtype, length):
    x = values(length, dtype)
    data = globalq.encode(x, "qsgd:8", seed=5, step=6, worker=7)
    assert isinstance(data, bytes) and data == globalq.encode(x, "qsgd:8", seed=5, step=6, worker=7)
    label = globalq.read_label(data)
    assert label == (label.operator, dtype, length, 5, 6, 7, 1) and globalq.operator("qsgd:8").startswith(label.operator)
    y = globalq.decode(data)
    assert y.dtype == dtype and y.shape == (length,)
    assert length == 0 or np.abs(y - x).max() <= np.sqrt(512) * 2 / 127  # a gap of qsgd: the norm of a bucket / 127
    into = np.full((length, 1), 3, dtype)
    assert globalq.decode(data, into) is into and (into[:, 0] == y).all()
    globalq.decode(data, into, add=True)
    assert (into[:, 0] == y + y).all()


def test_vectors_are_unbiased_and_errors_of_clients_cancel():
    x, clients = values(512), 400
    total = np.zeros(512)
    one = []
    for _ in range(clients):
        y = globalq.decode(globalq.encode(x, "qsgd:4"))
        one.append(((y - x).astype("float64")**2).sum())
        total += y
    # the squared error of the mean is that of one divided by their number; relative deviations of such sums are far below 1/2
    assert ((total / clients - x)**2).sum() == pytest.approx(np.mean(one) / clients, rel=0.5)


def test_errors_of_correlated_vectors_cancel_more():
    x, errors = values(4096), {}
    for rounding in ("stochastic", "correlated"):
        operator = globalq.operator("cgx:3", rounding=rounding)
        errors[rounding] = 0
        for step in range(20):
            mean = sum(globalq.decode(globalq.encode(x, operator, seed=1, step=step, worker=k, workers=8)) for k in range(8)) / 8
            errors[rounding] += ((mean - x)**2).sum()
    assert errors["correlated"] < errors["stochastic"] / 5  # 8 in the mean, for equal vectors
    with pytest.raises(globalq.ConfigurationError, match="there is no worker 8 of 8"):
        globalq.encode(x, "cgx:4,rounding=correlated", worker=8, workers=8)


def test_damaged_and_unexpected_bytes_are_refused():
    data = globalq.encode(values(300), "cgx:4")
    out = np.full(300, 5, "float32")
    for k in range(0, len(data), 7):
        for damaged in (data[:k], data[:k] + bytes([data[k] ^ 16]) + data[k + 1:], data + b"\0"):
            with pytest.raises(globalq.FrameError):
                globalq.decode(damaged, out)
    for wrong, says in ((dict(operator="cgx:8"), "of operator \"norm=local:inf bucket=128"), (dict(most=299), "at most 299 are accepted"),
                        (dict(out=np.zeros(301, "float32")), "contain 300 values, and the vector has 301"),
                        (dict(out=np.zeros(300, "float64")), "contain float32, and the vector is float64")):
        with pytest.raises(globalq.FrameError, match=says):
            globalq.decode(data, **wrong)
    assert (out == 5).all()
    globalq.decode(data, out, operator="norm=local:inf wire=packed:4 bucket=128", most=300)
    assert np.abs(out - values(300)).max() <= 4 / 14


@pytest.mark.parametrize("operator, says", [("float32", "has no codes"), ("cgx:2,feedback", "keeps no residuals"), ("alq:3", "learns levels"),
                                            ("terngrad:2.5", "clips"), ("nonsense", "nonsense"), (4, "operator is 4")])
def test_operators_that_need_a_call_are_refused(operator, says):
    with pytest.raises(globalq.ConfigurationError, match=says):
        globalq.encode(values(100), operator)


def test_what_cannot_be_encoded_is_refused():
    with pytest.raises(globalq.NonFiniteError):
        globalq.encode(np.array([1, np.nan], "float32"), "cgx:4")
    with pytest.raises(globalq.ConfigurationError, match="int64"):
        globalq.encode(np.arange(5), "cgx:4")
    with pytest.raises(globalq.ConfigurationError, match="expected the bytes"):
        globalq.decode("text")
    with pytest.raises(globalq.ConfigurationError, match="nothing to add to"):
        globalq.decode(globalq.encode(values(5), "cgx:4"), add=True)
    with pytest.raises(globalq.ConfigurationError, match="step"):
        globalq.encode(values(5), "cgx:4", step=2**48)
    with pytest.raises(globalq.ConfigurationError, match="worker"):
        globalq.encode(values(5), "cgx:4", worker=-1)


def test_threads_and_forked_processes_have_codecs_of_their_own():
    x = values(20000)
    data = globalq.encode(x, "cgx:4", seed=1)
    expected = globalq.decode(data)
    wrong = []

    def work():
        for name in ("cgx:4", "qsgd:4", "cgx:2", "cgx:3", "cgx:5", "cgx:6", "cgx:7", "cgx:8", "qsgd:8", "nuqsgd:4") * 3:
            y = globalq.decode(globalq.encode(x, name, seed=1))
            if name == "cgx:4" and not (y == expected).all():
                wrong.append(name)

    crew = [threading.Thread(target=work) for _ in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert not wrong
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all((y == expected).all() for y in pool.map(globalq.decode, [data] * 4))


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 1000).to(torch.bfloat16).reshape(20, 50)
    data = globalq.encode(x, "cgx:8")
    assert globalq.read_label(data).dtype == "bfloat16" and globalq.decode(data).dtype == "float32"
    y = globalq.decode(data, torch.empty_like(x))
    assert (y.float() - x.float()).abs().max() < 0.02
    with pytest.raises(globalq.ConfigurationError, match="requires a gradient"):
        globalq.decode(data, torch.zeros(1000, requires_grad=True))
