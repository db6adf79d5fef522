"""Tests of the toolkit; the folders mirror the packages."""
