"""The paper's Section 7 and Example 2.3 on this machine, comparisons with other libraries, and the reports they end in."""
