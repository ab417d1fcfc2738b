"""The engine: texts enter, are written side by side one step at a time, and leave."""
