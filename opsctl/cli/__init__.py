"""The verbs, one file each: parse, call, show. No decisions."""
