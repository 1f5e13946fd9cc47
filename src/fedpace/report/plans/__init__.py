"""Plans of deadlines and batches: tables, CSV and figures."""
