"""What bench/report.py is made of: results, drawings, one plot a module, the table."""
