"""Names of methods: which are known, which exclude each other, and what they stand for."""

import pytest

from actorQ.core import errors
from baseline.quantization import recipes


@pytest.mark.parametrize(("text", "expected"), [
    ("minmax", "minmax"), ("auto", "auto"), (" GPTQ , mse", "mse,gptq"),
    ("bias-correction,mse", "mse,bias-correction"), ("minmax,gptq", "gptq"), ("mse,mse", "mse"),
    ("action,bias-correction,smooth", "smooth,bias-correction,action"),
])
def test_canonical_names(text, expected):
    assert recipes.parse(text) == expected
    assert recipes.parse(expected) == expected


@pytest.mark.parametrize(("text", "said"), [
    ("", "names ''"), ("gtpq", "names 'gtpq': possible are minmax, mse"),
    ("auto,mse", "stands alone"), ("mse,percentile", "mse and percentile each choose the range"),
    ("minmax,mse", "minmax and mse"), ("gptq,adaround", "choose the rounding"),
    ("action,gptq", "action and gptq"), ("smooth,awq", "choose the transformation"),
    ("action,percentile", "action and percentile each choose the range"),
    ("distill,action", "distill and action"), ("distill,adaround", "choose the rounding"),
    ("bias-correction,distill", "bias-correction and distill each choose the biases"),
])
def test_mistakes_are_told(text, said):
    with pytest.raises(errors.UserError, match=said) as caught:
        recipes.parse(text)
    assert "\n" not in str(caught.value)


def test_what_names_stand_for():
    assert recipes.recipe("minmax") == recipes.Recipe()
    assert recipes.recipe("mse,awq,gptq,bias-correction") == recipes.Recipe(
        "awq", "mse", "gptq", True
    )
    assert recipes.recipe("action") == recipes.Recipe(None, "action", "action")
    assert recipes.recipe("smooth,distill") == recipes.Recipe("smooth", "distill", "distill")


@pytest.mark.parametrize(("arguments", "said"), [
    (("mse", "fp16", "nearest", "paper", 0), "not for fp16"),
    (("gptq", "17", "nearest", "paper", 0), "2 to 16 bits, not for 17 bits"),
    (("minmax", "8", "nearest", "paper", 4), "add --granularity=channel"),
    (("minmax", "bf16", "nearest", "channel", 4), "--group_size=4 is for integers"),
    (("gptq", "8", "floor", "paper", 0), "leave out --rounding"),
    (("auto", "8", "floor", "paper", 0), "leave out --rounding"),
    (("distill", "8", "floor", "paper", 0), "leave out --rounding"),
])
def test_settings_that_do_not_fit(arguments, said):
    with pytest.raises(errors.UserError, match=said):
        recipes.check(*arguments)


def test_settings_that_fit():
    recipes.check("minmax", "fp16", "floor", "paper", 0)
    recipes.check("mse", "8", "floor", "channel", 4)
