"""params.yaml as one frozen, checked tree: every knob there is.

A key that is unknown, missing, of the wrong type or out of range raises `ParamsError`, as values do that do
not fit together.
"""

from parashot.params.parallel import ParallelParams as ParallelParams
from parashot.params.parallel import StrategyBenchParams as StrategyBenchParams
from parashot.params.parallel import StrategyParams as StrategyParams
from parashot.params.sections import AugmentParams as AugmentParams
from parashot.params.sections import ClaimsParams as ClaimsParams
from parashot.params.sections import Compile as Compile
from parashot.params.sections import DataParams as DataParams
from parashot.params.sections import EpisodeSpec as EpisodeSpec
from parashot.params.sections import ModelParams as ModelParams
from parashot.params.sections import Pairing as Pairing
from parashot.params.sections import Precision as Precision
from parashot.params.sections import SeedsStudyParams as SeedsStudyParams
from parashot.params.sections import SyntheticParams as SyntheticParams
from parashot.params.sections import TrainParams as TrainParams
from parashot.params.tree import IMAGES_PER_CLASS as IMAGES_PER_CLASS
from parashot.params.tree import SPLIT_CLASSES as SPLIT_CLASSES
from parashot.params.tree import Params as Params
from parashot.params.tree import load_params as load_params
