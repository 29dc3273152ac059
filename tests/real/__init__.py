"""Tests on real pretrained models, which they fetch by themselves."""
