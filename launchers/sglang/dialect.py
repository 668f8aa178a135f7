"""SGLang's log, which its twin writes too."""

from launchers.dialect import Dialect
from launchers.sglang.failures import classify
from launchers.sglang.progress import ProgressReader

SGLANG = Dialect(ProgressReader, classify)
