# SPDX-License-Identifier: BSL-1.0
"""The modules of bench/report.py: results, the table, and the image."""
