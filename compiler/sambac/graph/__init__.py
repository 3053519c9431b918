"""Reading graphs: walks, names, types and other facts that every stage asks for."""
