"""Small language models that act: MS-GRPO for text games, on LoRA adapters, from the Hub and to the Hub."""

__version__ = "0.1.0"
