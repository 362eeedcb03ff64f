"""Judgement: histories and facts become verdicts."""
