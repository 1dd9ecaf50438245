"""The database: its transactions, images and rows that every part writes."""
