"""Generated from pef.fbs by schema/regenerate.py."""
