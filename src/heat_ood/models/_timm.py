"""Models of timm: ``timm:NAME``, or ``timm:NAME?setting=value&…`` with settings that read no file."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from typing import Any
from urllib.parse import parse_qsl

from torch import nn

from ..errors import Argument, InputError
from ._words import RandomWeights, broken, first_line

__all__ = ["from_timm"]

NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_-]+)?")
"""A model and perhaps the tag of its weights: no address, no path, and none of timm's other sources."""
BUILDING = """
num_classes in_chans img_size patch_size window_size global_pool drop_rate drop_path_rate drop_block_rate
proj_drop_rate attn_drop_rate pos_drop_rate patch_drop_rate norm_layer act_layer aa_layer se_layer mlp_layer
embed_dim embed_dims dims depth depths width widths layers channels num_heads num_kv_heads head_dim mlp_ratio
mlp_ratios qkv_bias qk_norm init_values ls_init_value layer_scale_init_value norm_eps output_stride stem_type
stem_width stem_chs stem_size pad_type class_token no_embed_class reg_tokens num_reg_tokens pos_embed pre_norm
fc_norm final_norm dynamic_img_size dynamic_img_pad strict_img_size pool_include_prefix head_init_scale
head_norm_first head_hidden_size kernel_size kernel_sizes conv_bias conv_mlp use_grn cardinality base_width groups
growth_rate avg_down replace_stem_pool block_reduce_first down_kernel_size zero_init_last weight_init fix_init
fix_stem distilled num_features aux_logits channel_multiplier inference_mode use_rel_pos use_abs_pos
always_partition scriptable exportable no_jit
"""
SETTINGS = frozenset(BUILDING.split())
"""What may follow a name: how the network is built. All else is refused, since some of timm's arguments make it read a
file or fetch one (``checkpoint_path``, ``pretrained_cfg``, ``pretrained_cfg_overlay``, ``cache_dir``), others by its
version, and a file may be a pickle."""
LARGEST = 100_000
"""No number of a setting is larger: a name is not to ask for all the memory there is."""
SAFE = (1, 0, 26)
"""The first timm that reads fetched weights by torch's restricted unpickler alone."""


def from_timm(text: str, pretrained: bool, own_weights: bool) -> nn.Module:
    """A model of timm by what follows ``timm:``.

    Args:
        text: its name and settings.
        pretrained: fetch its weights.
        own_weights: whether the caller has others, so that random ones need no warning.
    """
    name, _, query = text.partition("?")
    settings = settings_of(name, query)
    pretrained = bool(settings.pop("pretrained", pretrained) or pretrained)
    if pretrained and own_weights:
        raise InputError(
            "A model has either timm's weights or those of a file. Leave out ",
            Argument("pretrained", True),
            " or ",
            Argument("weights"),
            ".",
        )
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name == "timm":
            raise InputError("timm is not installed. Install it with: pip install 'heat-ood[timm]'") from error
        raise InputError(f"timm needs the module {error.name!r}, which is not installed. Install it.") from error
    except Exception as error:
        raise InputError(f"timm is installed, but cannot be imported {broken(error)}") from error
    if pretrained and tuple(map(int, re.findall(r"\d+", timm.__version__)[:3])) < SAFE:
        wanted = ".".join(map(str, SAFE))
        raise InputError(
            f"timm {timm.__version__} may run code that fetched weights hold. Install a later one, pip install "
            f"'timm>={wanted}', or pass a file of weights with ",
            Argument("weights"),
            ".",
        )
    if not NAME.fullmatch(name) or not timm.is_model(name):
        close = difflib.get_close_matches(name.split(".")[0], timm.list_models(), n=3, cutoff=0.5)
        meant = f"Did you mean {', '.join(close)}? " if close else ""
        raise InputError(f"timm has no model {name!r}. {meant}timm.list_models() lists all.")
    try:
        model = timm.create_model(name, pretrained=pretrained, **settings)
    except Exception as error:
        if pretrained:
            raise InputError(
                f"The weights of timm:{name} could not be fetched ({first_line(error)}). Check the network, or save "
                "the weights as a .safetensors file where there is one and pass it with ",
                Argument("weights"),
                ".",
            ) from error
        raise InputError(
            f"timm could not make {name!r} with {settings} ({first_line(error)}). Check the settings after '?'."
        ) from error
    if not pretrained and not own_weights:
        warnings.warn(
            RandomWeights(
                f"timm:{name} has random weights, so its features mean little. Pass ",
                Argument("weights"),
                " or ",
                Argument("pretrained", True),
                ".",
            ),
            stacklevel=4,
        )
    assert isinstance(model, nn.Module)
    return model


def settings_of(name: str, query: str) -> dict[str, Any]:
    """The settings after the name, each once and none that could read a file."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(SETTINGS))
    except ValueError as error:
        raise InputError(f"timm:{name} has more settings than there are. Leave some out.") from error
    found: dict[str, Any] = {}
    for key, text in pairs:
        if key in found:
            raise InputError(f"timm:{name} has the setting {key!r} twice. Give it once.")
        if key != "pretrained" and key not in SETTINGS:
            close = difflib.get_close_matches(key, SETTINGS, n=1)
            meant = f"Did you mean {close[0]}? " if close else ""
            raise InputError(
                f"timm:{name} is not given the setting {key!r}: only what says how the network is built may follow the "
                "name, since timm reads files, which may be pickles, by other arguments. "
                f"{meant}A file of weights is passed with ",
                Argument("weights"),
                "; for all else write a function that makes the model, and name it: package.module:function.",
            )
        found[key] = checked(literal(text), f"timm:{name}?{key}")
    return found


def checked(value: Any, what: str) -> Any:
    """A number that is not too large, true or false, none, a word, or several of them."""
    if isinstance(value, list | tuple) and len(value) <= 100:
        return type(value)(checked(item, what) for item in value)
    if value is None or isinstance(value, bool) or (isinstance(value, str) and re.fullmatch(r"\w{1,40}", value)):
        return value
    if isinstance(value, int | float) and abs(value) <= LARGEST:
        return value
    raise InputError(
        f"{what} is neither a word nor a number up to {LARGEST:,}. Check the settings after '?', or write a function "
        "that makes the model, and name it: package.module:function."
    )


def literal(text: str) -> Any:
    if not text:
        return True
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
