"""Tests on real pretrained models. The tests fetch the models."""
