"""Tests of a room lie in the folder of its name; what several rooms use lies here."""
