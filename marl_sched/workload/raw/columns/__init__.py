"""Any CSV or Parquet, by a column mapping."""
