"""A detector on one ID and several OOD sets: a row for each set and their average, as objects, Markdown, JSON, CSV."""

from ._compare import compare
from ._curves import Curve
from ._evaluation import AVERAGE as AVERAGE
from ._evaluation import CONVENTION as CONVENTION
from ._evaluation import EVALUATION as EVALUATION
from ._evaluation import HEADERS as HEADERS
from ._evaluation import Evaluation
from ._evaluation import Row as Row
from ._layout import layout as layout
from ._limits import check_count as check_count
from ._limits import check_finite as check_finite
from ._limits import check_shares as check_shares
from ._markdown import code as code
from ._markdown import escape as escape
from ._markdown import markdown as markdown
from ._pictures import Picture
from ._pictures import unusual as unusual
from ._scores import RECORD as RECORD
from ._scores import TABLES as TABLES
from ._scores import check_ending as check_ending
from ._scores import is_scores as is_scores
from ._scores import merge_scores as merge_scores
from ._scores import reusable as reusable
from ._scores import rows_of as rows_of
from ._scores import write_csv as write_csv
from ._scores import write_shard as write_shard
from ._scores import write_table as write_table
from ._scoring import Scorer as Scorer
from ._scoring import evaluate, evaluate_scores
from ._sheets import sheet_cell as sheet_cell

__all__ = ["Curve", "Evaluation", "Picture", "compare", "evaluate", "evaluate_scores"]
