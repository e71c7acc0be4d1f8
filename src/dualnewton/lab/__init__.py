"""Reproduction of the paper's Example 2.3 and Section 7, comparisons with other libraries, and their reports."""
