# SPDX-License-Identifier: BSL-1.0
"""What bench/report.py is made of: results, the table, pictures."""
