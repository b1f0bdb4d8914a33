"""Where features come from: hook a model, pool its maps, store and stream the result."""

from ._accuracy import accuracy_of as accuracy_of
from ._batches import Inputs as Inputs
from ._batches import check_order as check_order
from ._batches import unpack as unpack
from ._closing import is_sharded as is_sharded
from ._closing import read_closing as read_closing
from ._columns import Array as Array
from ._columns import Head
from ._columns import Layer as Layer
from ._columns import check_same_model as check_same_model
from ._columns import column_name as column_name
from ._contrast import has_images as has_images
from ._digest import digest_of_samples as digest_of_samples
from ._distortions import CONTRAST as CONTRAST
from ._distortions import KINDS
from ._distortions import check_kinds as check_kinds
from ._double import frozen as frozen
from ._double import precision as precision
from ._extractor import Extractor
from ._features import Features
from ._finite import check_finite as check_finite
from ._graph import readable_graph as readable_graph
from ._guard import Guard, Guarded
from ._heads import outputs_of as outputs_of
from ._joining import joined as joined
from ._kept import keep_moments as keep_moments
from ._kept import shards_of as shards_of
from ._kept import without as without
from ._manifest import FEATURES_FILE as FEATURES_FILE
from ._manifest import read_manifest as read_manifest
from ._merging import merge_shards
from ._moments import Moments
from ._passes import called as called
from ._quantiles import quantile as quantile
from ._remote import begun_at as begun_at
from ._remote import copy_of as copy_of
from ._seen import Seen
from ._shard import Shard
from ._shard import folder_of as folder_of
from ._shard import shard_name as shard_name
from ._shard import shards_in as shards_in
from ._spaces import Space
from ._spaces import normalise as normalise
from ._spaces import working_dtype as working_dtype
from ._tracing import tensors_of as tensors_of

__all__ = [
    "KINDS",
    "Extractor",
    "Features",
    "Guard",
    "Guarded",
    "Head",
    "Moments",
    "Seen",
    "Shard",
    "Space",
    "merge_shards",
]
