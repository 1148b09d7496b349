"""Reports on an experiment's results: tables, figures and CSV files."""
