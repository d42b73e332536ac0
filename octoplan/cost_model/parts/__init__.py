"""What layers are made of: attention, feed-forward, experts, state-space mixers and the two ends."""

from octoplan.cost_model.parts.attention import Attention
from octoplan.cost_model.parts.ends import Embedding, Head
from octoplan.cost_model.parts.experts import Experts
from octoplan.cost_model.parts.feed_forward import FeedForward
from octoplan.cost_model.parts.latent_attention import LatentAttention
from octoplan.cost_model.parts.mamba import Mamba
from octoplan.cost_model.parts.mamba2 import Mamba2
from octoplan.cost_model.parts.token_prediction import FinalNorm, TokenPredictionInput

__all__ = [
    "Attention",
    "Embedding",
    "Experts",
    "FeedForward",
    "FinalNorm",
    "Head",
    "LatentAttention",
    "Mamba",
    "Mamba2",
    "TokenPredictionInput",
]
